"""Where tensors are kept: on the IPU, or outside it in streaming memory. Everything is kept on the IPU."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from abele.frontends.poptorch.errors import OptionValueError
from abele.frontends.poptorch.options.checked import CheckedOptions
from abele.options import UNSET, Option, OptionTable, flag, integer

_IO_TILES = range(32, 193, 2)


class TensorLocationSettings(CheckedOptions):
    """Where tensors of one kind are kept, and which tiles load and store them."""

    table: ClassVar[OptionTable] = OptionTable(
        "TensorLocationSettings",
        {
            "minElementsForOffChip": integer(UNSET, honoured=False, doc="tensors of fewer elements stay on the IPU"),
            "minElementsForReplicatedTensorSharding": integer(
                UNSET, honoured=False, doc="replicas keep tensors whole in any case"
            ),
            "onChip": Option(UNSET, bool | None, honoured=False, doc="kept on the IPU"),
            "useReplicatedTensorSharding": flag(
                UNSET, honoured=False, doc="replicas keep whole tensors: sharing them out would save memory alone"
            ),
            "useIOTilesToLoad": flag(UNSET, honoured=False, doc="tiles for host traffic load them"),
            "useIOTilesToStore": flag(UNSET, honoured=False, doc="tiles for host traffic store them"),
        },
    )

    def minElementsForOffChip(self, min_elements: int) -> Self:
        """Tensors of fewer elements stay on the IPU."""
        return self.createOrSet(minElementsForOffChip=min_elements)

    def minElementsForReplicatedTensorSharding(self, min_elements: int) -> Self:
        """Stored: every replica keeps tensors whole in any case."""
        return self.createOrSet(minElementsForReplicatedTensorSharding=min_elements)

    def useOnChipStorage(self, use: bool | None = True) -> Self:
        """Keep them on the IPU; None to leave it to the compiler."""
        if use is None:
            return self.deleteIfExists("onChip")
        return self.createOrSet(onChip=use)

    def useReplicatedTensorSharding(self, use: bool = True) -> Self:
        """Stored: sharing tensors out to replicas would save memory and change no result; each keeps them whole."""
        return self.createOrSet(useReplicatedTensorSharding=use)

    def useIOTilesToLoad(self, use: bool = True) -> Self:
        """Load them with tiles that are kept for traffic with the host."""
        return self.createOrSet(useIOTilesToLoad=use)

    def useIOTilesToStore(self, use: bool = True) -> Self:
        """Store them with tiles that are kept for traffic with the host."""
        return self.createOrSet(useIOTilesToStore=use)


class TensorLocationOptions(CheckedOptions):
    """``opts.TensorLocations``."""

    table: ClassVar[OptionTable] = OptionTable(
        "Options.TensorLocations",
        {
            "num_io_tiles": integer(UNSET, honoured=False, doc="tiles kept for traffic with the host; all tiles do it"),
            **{
                f"location_{kind}": Option(
                    {}, dict[str, Any], honoured=False, doc=f"where {kind} tensors are kept: on the IPU in any case"
                )
                for kind in ("activation", "weight", "optimizer", "accumulator")
            },
        },
    )

    def numIOTiles(self, num_tiles: int) -> Self:
        """How many tiles are kept for traffic with the host: an even number between 32 and 192."""
        if isinstance(num_tiles, bool) or not isinstance(num_tiles, int) or num_tiles not in _IO_TILES:
            raise OptionValueError("numIOTiles must be an even number between 32 and 192.")
        return self.createOrSet(num_io_tiles=num_tiles)

    def setActivationLocation(self, location: TensorLocationSettings) -> Self:
        """Where activations are kept."""
        return self._locate("activation", location)

    def setWeightLocation(self, location: TensorLocationSettings) -> Self:
        """Where weights are kept."""
        return self._locate("weight", location)

    def setOptimizerLocation(self, location: TensorLocationSettings) -> Self:
        """Where the state of optimisers is kept."""
        return self._locate("optimizer", location)

    def setAccumulatorLocation(self, location: TensorLocationSettings) -> Self:
        """Where sums of gradients are kept."""
        return self._locate("accumulator", location)

    def _locate(self, kind: str, location: TensorLocationSettings) -> Self:
        if not isinstance(location, TensorLocationSettings):
            raise OptionValueError(f"the location of {kind} tensors is a TensorLocationSettings, got {location!r}")
        return self.set(**{f"location_{kind}": location.toDict()})
