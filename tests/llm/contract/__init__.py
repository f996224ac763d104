"""What every engine of `llm` does alike, behind the whole service: rows × engines, a reason for each hole.

python -m tests.llm.contract.rows                                      # what they leave out
TRIMODAL_VLLM_PYTHON=… TRIMODAL_VLLM_CHECKPOINT=… pytest -n 0 tests/llm/contract -m 'slow or not slow'
"""
