"""Options of ONNX Runtime's CUDA provider, by its own names."""

from __future__ import annotations

import pytest

from graphmem.allocator.bfc import ExtendStrategy
from graphmem.errors import UsageError
from graphmem.serving.settings import Search, ServeSettings, with_options


def test_options_by_their_names() -> None:
    made = with_options(
        ServeSettings(),
        [
            "gpu_mem_limit=4GiB",
            "arena_extend_strategy=kSameAsRequested",
            "cudnn_conv_algo_search=HEURISTIC",
            "use_tf32=0",
            "do_copy_in_default_stream=0",
        ],
    )
    assert made.run.arena.limit == 4 << 30
    assert made.run.arena.strategy is ExtendStrategy.SAME_AS_REQUESTED
    assert (made.cuda.search, made.cuda.tf32) == (Search.HEURISTIC, False)
    assert made.cuda.given[-1] == ("do_copy_in_default_stream", "0")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("gpu_memlimit=1", "did you mean 'gpu_mem_limit'?"),
        ("gpu_mem_limit", "give NAME=VALUE"),
        ("gpu_mem_limit=much", "is not a size"),
        ("arena_extend_strategy=kSameRequested", "did you mean 'kSameAsRequested'?"),
        ("cudnn_conv_algo_search=FAST", "not one of EXHAUSTIVE, HEURISTIC, DEFAULT"),
        ("use_tf32=perhaps", "not one of 0, 1, false, true"),
        ("gpu_external_alloc=1", "there is no arena to plan"),
    ],
)
def test_what_is_wrong_with_an_option(option: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        with_options(ServeSettings(), [option])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
