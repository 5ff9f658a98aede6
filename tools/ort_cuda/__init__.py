"""ONNX Runtime's own CUDA provider on a stand-in for CUDA's runtime, without a GPU.

The stand-in answers as an A100 does and runs no kernels: "device memory" is the host's, copies
copy, launches and cuBLAS do nothing. Graph partition, plan, arena and provider options are
ONNX Runtime's, so that its profile shows what its arena would hold on a GPU. Convolutions do
not run (there is no cuDNN behind it), nor does what decides by values that a kernel computed.

    python tools/ort_cuda/build.py FOLDER       # with gcc, and the wheels of CUDA's libraries
    eval "$(python tools/ort_cuda/build.py FOLDER --environment table)"
    python tools/ort_cuda/table.py              # the kernels: writes kernels.csv
    eval "$(python tools/ort_cuda/build.py FOLDER --environment run)"
    python tools/ort_cuda/probe.py [OP ...]     # which inputs and outputs kernels have where
    python tools/ort_cuda/run.py MODEL.onnx [--dim N] [NAME=VALUE ...]  # the arena of two runs
"""
