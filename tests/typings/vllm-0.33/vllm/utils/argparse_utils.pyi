# vLLM 0.33.0, Python API: the part that this project calls. Signatures alone; tests/typings/README.md.
from argparse import ArgumentParser

class FlexibleArgumentParser(ArgumentParser): ...
