"""Reorder: pool first, rectify after. max(relu(x)) is relu(max(x)), to the last bit.

A rectified normal is clipped and skewed, and Clark's formula wants normals. Before the ReLU it has
them, and the ReLU after the pool is exact again, on fewer elements. Any function that never falls
changes places with a maximum; these are the ones that networks put there.
"""

from __future__ import annotations

import torch
from torch import fx

aten = torch.ops.aten

_MAX_POOLS = {aten.max_pool1d.default, aten.max_pool2d.default, aten.max_pool3d.default}
_NEVER_FALL = {aten.relu.default, aten.relu6.default, aten.hardtanh.default}


def pool_first(module: fx.GraphModule) -> None:
    """Let each max pool change places with the rectifier that alone feeds it, in place."""
    for pool in list(module.graph.nodes):
        if pool.target not in _MAX_POOLS:
            continue
        rectifier = pool.args[0]
        if rectifier.target not in _NEVER_FALL or len(rectifier.users) > 1:
            continue
        pool.update_arg(0, rectifier.args[0])
        with module.graph.inserting_after(pool):
            after = module.graph.call_function(
                rectifier.target, (pool, *rectifier.args[1:]), rectifier.kwargs
            )
        after.meta = {**rectifier.meta, "val": pool.meta.get("val")}
        for user in [user for user in pool.users if user is not after]:
            user.replace_input_with(pool, after)
        module.graph.erase_node(rectifier)
    module.graph.lint()
    module.recompile()
