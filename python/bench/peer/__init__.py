"""Libraries that save checkpoints, for python/bench/peers.py: each with the calls of its own documentation.

This module imports none of them, so that every environment can read the list.
"""

import dataclasses
import importlib


@dataclasses.dataclass(frozen=True)
class Entry:
    """A row of the table. `environment`: which Python runs it. `distribution`: the package whose version is reported.
    `copies`: a save copies the state, or reads all of it before it returns; JAX's arrays never change, so nothing has to."""

    title: str
    module: str
    kind: str
    environment: str
    distribution: str
    copies: bool = True


PEERS = {
    "tidemark": Entry("Tidemark", "tidemark_peer", "Default", "torch", "tidemark"),
    "tidemark-space": Entry('Tidemark, "space"', "tidemark_peer", "Space", "torch", "tidemark"),
    "torch-save": Entry("torch.save", "torch_files", "TorchSave", "torch", "torch"),
    "safetensors": Entry("safetensors", "torch_files", "Safetensors", "torch", "safetensors"),
    "fastsafetensors": Entry("fastsafetensors", "torch_files", "Fastsafetensors", "torch", "fastsafetensors"),
    "zipnn": Entry("zipnn", "torch_files", "Zipnn", "torch", "zipnn"),
    "dcp": Entry("DCP", "torch_distributed", "Dcp", "torch", "torch"),
    "dcp-thread": Entry("DCP, async, thread", "torch_distributed", "DcpThread", "torch", "torch"),
    "dcp-process": Entry("DCP, async, process", "torch_distributed", "DcpProcess", "torch", "torch"),
    "torch-checkpointing": Entry("torch_checkpointing", "torch_distributed", "TorchCheckpointing", "torch",
                                 "torch-checkpointing"),
    "orbax": Entry("Orbax, async", "jax_peers", "Orbax", "jax", "orbax-checkpoint", copies=False),
    "tensorstore": Entry("TensorStore, zarr3", "jax_peers", "Zarr", "jax", "tensorstore"),
    "tensorstore-ocdbt": Entry("TensorStore, OCDBT", "jax_peers", "Ocdbt", "jax", "tensorstore"),
}
OURS = ("tidemark", "tidemark-space")


def peer_class(name):
    """Raises ImportError where the library is missing."""
    entry = PEERS[name]
    return getattr(importlib.import_module(f"peer.{entry.module}"), entry.kind)
