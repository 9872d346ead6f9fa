"""What a workload can run on: the bare host, a container, a VM of the user's, its clone, a VM of ours, a VM in a VM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layer:
    """One kind of place where workloads run. Which layers are compared follows from what each stands on."""

    name: str  # in plans, treatments and stored runs
    on: str | None  # name of the layer that it stands on; None: on nothing
    title: str  # for people
    kernels: int  # how many kernels of guests are between the hardware and its processes
    start_seconds: float  # a guess of how long it takes to start and to settle, where nothing is emulated
    ours: bool = True  # vmtax starts and ends it; False: it is somebody's, and is measured as it runs
    keeps: bool = False  # its system is a user's, and so are its settings, but for those that a plan names

    @property
    def boots(self) -> bool:
        """Whether it has a kernel of its own, which is booted for a treatment."""
        return self.kernels > 0 and self.ours

    @property
    def below(self) -> Iterator[Layer]:
        """The layers under it, the nearest first."""
        if self.on is not None:
            yield LAYERS[self.on]
            yield from LAYERS[self.on].below


_ALL = (
    Layer("host", None, "host", 0, 0.0),
    Layer("container", "host", "container", 0, 1.0),
    Layer("existing", "host", "existing VM", 1, 1.0, ours=False, keeps=True),
    Layer("clone", "host", "cloned VM", 1, 40.0, keeps=True),
    Layer("vm", "host", "VM", 1, 10.0),
    Layer("nested", "vm", "nested VM", 2, 30.0),
)
LAYERS: Mapping[str, Layer] = {layer.name: layer for layer in _ALL}  # from the bottom up
EXISTING, EXISTING_PATH = "existing", "host/existing"  # the layer of `run --guest`, and the machine as records name it
CLONE, CLONE_PATH = "clone", "host/clone"  # the same of `run --guest --clone`
USUAL = ("host", "vm", "nested")  # of a plan that names none
GUESTS = tuple(layer.name for layer in _ALL if layer.boots and not layer.keeps)  # they boot the root image
OWNERS = tuple(layer.name for layer in _ALL if layer.keeps)
VMS = tuple(layer.name for layer in sorted(_ALL, key=lambda layer: not layer.ours) if layer.kernels)  # ours first


def _contrasts() -> Iterator[tuple[str, str]]:
    for number, layer in enumerate(_ALL):
        yield from ((below.name, layer.name) for below in layer.below)
        yield from ((beside.name, layer.name) for beside in _ALL[:number] if beside.on == layer.on)


# Names (of the baseline, of the treatment): each layer against those below it, and against those on the same one.
CONTRASTS = tuple(_contrasts())
ABOVE = tuple(layer for layer in _ALL if layer.on is not None)  # what is compared with the host
