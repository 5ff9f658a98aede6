"""Tests of graphmem.diffs.matching: which module is which."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmem.diffs import match
from graphmem.report import Layer
from tests.diffs.reports import TOP, row, rows, stack


def pairs(base: tuple[Layer, ...], head: tuple[Layer, ...]) -> set[tuple[str | None, str | None]]:
    """The paths before and after of all modules that are not where they were."""
    found = {(_path(m.before), _path(m.after)) for m in match(base, head)}
    return {(before, after) for before, after in found if before != after}


def _path(layer: Layer | None) -> str | None:
    return None if layer is None else layer.module


def test_a_model_is_matched_with_itself_path_by_path() -> None:
    layers = rows(*stack("layers", 12), "head Linear 7")
    assert pairs(layers, layers) == set()


def test_a_renamed_prefix_renames_all_below_it() -> None:
    base = rows(*stack("layers", 3), "head Linear 7")
    head = rows(*stack("blocks", 3), "head Linear 7")
    expected = {
        (layer.module, layer.module.replace("layers", "blocks"))
        for layer in base
        if layer.module.startswith("layers")
    }
    assert len(expected) == 10  # the list, and 3 blocks of 3 modules
    assert pairs(base, head) == expected


def test_a_subtree_that_was_renamed_and_made_wider_is_the_same_one() -> None:
    base = rows(*stack("layers", 2, width=100), "norm Norm 4", "lm_head Linear 7")
    head = rows(*stack("blocks", 2, width=200), "norm Norm 4", "lm_head Linear 7")
    assert ("layers.1.up", "blocks.1.up") in pairs(base, head)
    assert None not in {side for pair in pairs(base, head) for side in pair}


def test_the_only_one_of_its_class_is_renamed_though_all_else_of_it_changed() -> None:
    base = rows("head Linear 10", "fc Head 0", "fc.a Linear 3")
    head = rows("head Linear 10", "classifier Head 0", "classifier.b Linear 5")
    assert pairs(base, head) == {("fc", "classifier"), ("fc.a", "classifier.b")}


def test_a_layer_between_others_is_new_and_those_behind_it_are_renamed() -> None:
    base = rows("net.0 Linear 10", "net.1 ReLU 0", "net.2 Linear 30")
    head = rows("net.0 Linear 10", "net.1 Dropout 0", "net.2 ReLU 0", "net.3 Linear 30")
    assert pairs(base, head) == {
        (None, "net.1"),
        ("net.1", "net.2"),
        ("net.2", "net.3"),
    }


def test_a_layer_that_was_taken_out_is_gone_and_those_behind_it_are_renamed() -> None:
    base = rows("net.0 Linear 10", "net.1 Linear 20", "net.2 Linear 30")
    head = rows("net.0 Linear 10", "net.1 Linear 30")
    assert pairs(base, head) == {("net.1", None), ("net.2", "net.1")}


def test_more_blocks_of_the_same_kind_are_new_at_the_end() -> None:
    base, head = rows(*stack("layers", 2)), rows(*stack("layers", 3))
    assert pairs(base, head) == {
        (None, name) for name in ("layers.2", "layers.2.up", "layers.2.down")
    }


def test_a_layer_of_another_class_in_the_same_place_was_replaced() -> None:
    base = rows("net.0 Linear 10", "net.1 ReLU 0", "act ReLU 0")
    head = rows("net.0 Linear 10", "net.1 GELU 0", "act GELU 0")
    assert pairs(base, head) == set()


def test_a_changed_size_is_the_same_layer_also_where_another_has_that_size_now() -> None:
    base = rows("attn Attention 0", "attn.q Linear 400", "attn.k Linear 100")
    head = rows("attn Attention 0", "attn.q Linear 100", "attn.k Linear 25")
    assert pairs(base, head) == set()


def test_a_model_that_was_wrapped_has_moved_whole() -> None:
    base = rows("conv Conv2d 9", *stack("layers", 2))
    head = rows("model Net 0", "model.conv Conv2d 9", *stack("model.layers", 2))
    found = match(base, head)
    moved = {m.before.module: m.after.module for m in found if m.moved and m.before and m.after}
    assert moved == {layer.module: f"model.{layer.module}" for layer in base if layer.module != TOP}
    assert [m.after.module for m in found if m.before is None and m.after] == ["model"]


def test_a_layer_in_an_adapter_is_the_layer_and_the_adapter_is_new() -> None:
    base = rows("attn Attention 0", "attn.q Linear 9")
    head = rows(
        "attn Attention 0", "attn.q LoraLinear 0", "attn.q.base_layer Linear 9", "attn.q.a Linear 2"
    )
    there = {("attn.q", "attn.q.base_layer"), (None, "attn.q"), (None, "attn.q.a")}
    assert pairs(base, head) == there
    assert pairs(head, base) == {(after, before) for before, after in there}


def test_what_has_no_parameters_is_not_moved_to_wherever_its_like_is_new() -> None:
    base = rows("a A 0", "a.act ReLU 0", "b B 0")
    head = rows("a A 0", "b B 0", "b.act ReLU 0")
    assert pairs(base, head) == {("a.act", None), (None, "b.act")}


def test_a_moved_layer_goes_to_the_one_of_the_same_name() -> None:
    base = rows("a A 0", "a.proj Linear 9", "b B 0")
    head = rows("a A 0", "b B 0", "b.other Linear 9", "b.proj Linear 9")
    assert pairs(base, head) == {("a.proj", "b.proj"), (None, "b.other")}


def test_rows_of_modules_below_one_without_a_row_are_matched() -> None:
    base, head = (row("enc.0.fc", parameters=3),), (row("encoder.0.fc", parameters=3),)
    assert pairs(base, head) == {("enc.0.fc", "encoder.0.fc")}


names = st.sampled_from(["a", "b", "0", "1", "2"])
models = st.dictionaries(
    st.lists(names, min_size=1, max_size=3).map(".".join),
    st.tuples(st.sampled_from(["Linear", "ReLU", "Block"]), st.integers(0, 2)),
    max_size=8,
).map(lambda found: tuple(row(path, kind, n) for path, (kind, n) in found.items()))


@given(models, models)
def test_each_row_has_one_place(base: tuple[Layer, ...], head: tuple[Layer, ...]) -> None:
    found = match(base, head)
    before = [m.before.module for m in found if m.before is not None]
    after = [m.after.module for m in found if m.after is not None]
    assert sorted(before) == sorted(layer.module for layer in base)
    assert sorted(after) == sorted(layer.module for layer in head)


@given(models)
def test_nothing_changes_places_in_the_same_model(layers: tuple[Layer, ...]) -> None:
    assert pairs(layers, layers) == set()


@pytest.mark.parametrize("count", [2_000])
def test_thousands_of_equal_blocks_are_matched_at_once(count: int) -> None:
    base, head = rows(*stack("experts", count)), rows(*stack("experts", count - 1))
    gone = {before for before, after in pairs(base, head) if after is None}
    assert gone == {f"experts.{count - 1}{end}" for end in ("", ".up", ".down")}
