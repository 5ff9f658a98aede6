"""Operators whose CUDA kernels are accounted for, so that a report can name those that are not.

An operator is reviewed if it
1. has a rule of its own, for scratch, results or both, or an override,
2. is pointwise: CUDA's kernels convert and broadcast while they read (ATen/native/cuda/
   Loops.cuh, ``gpu_kernel``), where the CPU's may copy first,
3. is a view, or makes a tensor from no tensor,
4. or stands in ``FREE``: its kernel allocates nothing beside its results. The file named
   beside each group is where its kernels are; most entries were not opened one by one for
   torch 2.13 and 2.14, as these kernels have been so for years.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch._ops import OpOverload

FREE: Mapping[str, tuple[str, ...]] = {
    "only fills its result: aten/src/ATen/native/TensorFactories.cpp": (
        *("empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like"),
        *("randint_like", "new_empty", "new_empty_strided", "new_zeros", "new_ones", "new_full"),
        *("constant_pad_nd", "select_backward", "slice_backward", "diagonal_backward"),
        *("unfold_backward", "as_strided_", "lift_fresh", "resize_", "triu", "tril", "triu_"),
        *("tril_", "eye", "fill_", "zero_", "one_hot"),
    ),
    "is a view, though its schema says otherwise: aten/src/ATen/native/TensorShape.cpp": (
        *("_unsafe_view", "unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk", "set_"),
        *("set_data", "lift", "detach_", "squeeze_", "unsqueeze_", "t_", "transpose_"),
    ),
    "touches no data, or looks at it where it lies: aten/src/ATen/native/TensorProperties.cpp": (
        *("_assert_async", "_assert_tensor_metadata", "record_stream", "is_same_size"),
        *("is_pinned", "is_set_to", "_has_same_storage_numel"),
    ),
    "draws in place: ATen/native/cuda/DistributionTemplates.h": (
        *("normal_", "uniform_", "random_", "bernoulli_", "exponential_", "log_normal_"),
        *("cauchy_", "geometric_", "normal", "bernoulli", "native_dropout", "poisson"),
    ),
    "copies element by element, converting: aten/src/ATen/native/cuda/Copy.cu": (
        *("copy_", "_to_copy", "clone", "contiguous", "_local_scalar_dense", "_foreach_copy_"),
        *("flip", "_reshape_copy", "repeat"),
    ),
    "metadata is an argument of the kernel: aten/src/ATen/native/cuda/Shape.cu": ("cat", "stack"),
    "adds atomically or reads at indices: Indexing.cu, ScatterGatherKernel.cu, IndexKernel.cu": (
        *("gather", "scatter", "scatter_", "scatter_add", "scatter_add_", "index_select"),
        *("index_add", "index_add_", "index_copy", "index_copy_", "index_fill", "index_fill_"),
        *("embedding", "take", "searchsorted", "bucketize", "grid_sampler_2d"),
        *("grid_sampler_2d_backward", "grid_sampler_3d", "grid_sampler_3d_backward"),
    ),
    "is a TensorIterator's kernel, though not tagged pointwise: ATen/native/cuda/Loops.cuh": (
        *("masked_fill", "masked_fill_", "glu", "glu_backward", "rsub", "complex", "polar"),
        *("native_dropout_backward", "hardtanh_backward", "log_sigmoid_backward", "_prelu_kernel"),
        *("_prelu_kernel_backward", "mse_loss_backward", "smooth_l1_loss_backward"),
        *("huber_loss_backward", "softplus_backward", "elu_backward", "leaky_relu_backward"),
        *("binary_cross_entropy_backward", "mish_backward", "hardsigmoid_backward"),
        *(
            "floor_divide",
            "hardswish_backward",
            "rrelu_with_noise",
            "softshrink_backward",
            "hardshrink_backward",
        ),
        *("log_sigmoid_forward", "soft_margin_loss_backward", "linalg_cross", "dot", "vdot"),
        *("hardswish", "hardswish_", "abs_", "gelu_", "mish_", "threshold_", "xlogy_", "addr"),
        *("addr_", "eq_", "ne_", "lt_", "le_", "gt_", "ge_", "heaviside_", "gcd_", "lcm_"),
        *("floor_divide_", "rrelu_with_noise_", "rrelu_with_noise_backward", "addbmm", "addbmm_"),
        *("_weight_norm_interface", "_weight_norm_interface_backward"),
    ),
    "adds atomically into its result, by way of shared memory: SummaryOps.cu": (
        *("histc", "bincount"),
    ),
    "sums rows into its result: EmbeddingBag.cu": (
        *("_embedding_bag", "_embedding_bag_forward_only"),
        "_embedding_bag_per_sample_weights_backward",
    ),
    "works on lists in place, or on results: ATen/native/cuda/MultiTensorApply.cuh": (
        *("_amp_foreach_non_finite_check_and_unscale_", "_amp_update_scale_"),
        *("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_"),
    ),
}
"""Why nothing is allocated, and where that was read -> operators (of ``aten``)."""

_FREE_NAMES = frozenset(f"aten::{name}" for names in FREE.values() for name in names)
_COLLECTIVES = frozenset(
    {"c10d::_allgather_base_", "c10d::_reduce_scatter_base_", "c10d::allreduce_"}
    | {"c10d::broadcast_", "_c10d_functional::all_reduce", "_c10d_functional::all_reduce_"}
    | {"_c10d_functional::all_gather_into_tensor", "_c10d_functional::reduce_scatter_tensor"}
    | {"_c10d_functional::wait_tensor", "_c10d_functional::_wrap_tensor_autograd"}
)
"""Those that work on the tensors that they are given, in torch/csrc/distributed/c10d/
ProcessGroupNCCL.cpp, or make their result alone, in Functional.cpp; what NCCL has for itself is
no part of PyTorch's allocator."""

_FREE = _FREE_NAMES | _COLLECTIVES

_REDUCING_LISTS = ("aten::_foreach_norm", "aten::_foreach_max", "aten::_foreach_powsum")


def allocates_nothing(func: OpOverload) -> bool:
    """Whether an operator without a rule was looked at, and takes no scratch."""
    name = func._schema.name
    if torch.Tag.pointwise in func.tags or func.is_view or name in _FREE:
        return True
    if name.startswith("aten::_foreach_"):  # one pointwise kernel for many tensors
        return not name.startswith(_REDUCING_LISTS)
    return _makes_tensors(func)


def _makes_tensors(func: OpOverload) -> bool:
    """Whether it is one of torch's own and takes no tensor: ``zeros``, ``arange``, ``rand``."""
    arguments = func._schema.arguments
    takes = any("Tensor" in str(argument.type) for argument in arguments)
    return func.namespace in ("aten", "prim") and not takes
