"""Sources: from the command line's SUBJECT to a built model and its inputs."""

from graphmem.sources.inputs import InputRequest, InputSpec, ModelInputs, as_inputs, spec
from graphmem.sources.subject import LoadedSubject, load_subject

__all__ = [
    "InputRequest",
    "InputSpec",
    "LoadedSubject",
    "ModelInputs",
    "as_inputs",
    "load_subject",
    "spec",
]
