"""Build the stand-in for CUDA's runtime: shared libraries in a folder.

What ONNX Runtime's CUDA provider needs of CUDA is read from its own symbols: those that
``stand_in.c`` does not define succeed and do nothing.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
_NEEDED = re.compile(r" U ((?:__cuda|cuda|cublas|cu[A-Z])\w+)")
_DEFINED = re.compile(r"^[\w *]*\b((?:__cuda|cuda|cublas|cudnn)\w+)\(", re.MULTILINE)
_CUDNN = re.compile(rb"(?<![\w])cudnn[A-Z]\w{3,}(?![\w])")


_TENSORRT = {
    "libnvinfer.so.10": [
        *("createInferBuilder_INTERNAL", "createInferRefitter_INTERNAL"),
        *("createInferRuntime_INTERNAL", "getInferLibVersion", "getPluginRegistry"),
    ],
    "libnvonnxparser.so.10": [
        *("createNvOnnxParserRefitter_INTERNAL", "createNvOnnxParser_INTERNAL"),
    ],
}
"""What the TensorRT provider needs, whose kernels ONNX Runtime lists with CUDA's."""


def main() -> None:
    """Build, or print what to set in the shell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--environment", choices=("run", "table"))
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    if arguments.environment:
        own = folder / ("cudnn" if arguments.environment == "run" else "tensorrt")
        paths = [str(folder), str(own), *map(str, _libraries())]
        print(f"export LD_PRELOAD={folder / 'libstandin.so'} LD_LIBRARY_PATH={':'.join(paths)}")
        return
    provider = _site("onnxruntime") / "capi" / "libonnxruntime_providers_cuda.so"
    symbols = subprocess.run(
        ["nm", "-D", "--undefined-only", str(provider)], check=True, capture_output=True, text=True
    ).stdout
    own = (HERE / "stand_in.c").read_text("utf-8")
    rest = sorted(set(_NEEDED.findall(symbols)) - set(_DEFINED.findall(own)))
    _compile(folder / "libstandin.so", own + _doing_nothing(rest))
    _compile(folder / "libcuda.so.1", "long cuInit(void) { return 0; }\n")
    _compile(folder / "cudnn" / "libcudnn.so.9", _cudnn(provider))
    for name, functions in _TENSORRT.items():
        _compile(folder / "tensorrt" / name, _doing_nothing(functions))


def _doing_nothing(names: list[str]) -> str:
    return "".join(f"long {name}(void) {{ return 0; }}\n" for name in names)


def _cudnn(provider: Path) -> str:
    """CuDNN by its name alone: a handle can be made, and nothing else done."""
    own = (HERE / "cudnn.c").read_text("utf-8")
    names = {name.decode() for name in _CUDNN.findall(provider.read_bytes())}
    rest = sorted(names - set(_DEFINED.findall(own)))
    made = [name for name in rest if "Create" in name]
    text = "".join(f"int {n}(void **h) {{ *h = memory + 64; return 0; }}\n" for n in made)
    return own + text + _doing_nothing([name for name in rest if name not in made])


def _compile(target: Path, text: str) -> None:
    (include,) = (_site("nvidia") / "cu13" / "include",)
    target.parent.mkdir(parents=True, exist_ok=True)
    source = target.with_suffix(".c")
    source.write_text(text, "utf-8")
    command = ["gcc", "-shared", "-fPIC", "-O1", "-w", f"-I{HERE / 'include'}", f"-I{include}"]
    command += [str(source), "-o", str(target), f"-Wl,-soname,{target.name}"]
    subprocess.run(command, check=True)


def _libraries() -> list[Path]:
    return sorted(path for path in _site("nvidia").glob("*/lib") if path.is_dir())


def _site(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"{package} is not installed")
    return Path(next(iter(found.submodule_search_locations)))


if __name__ == "__main__":
    main()
