"""Places of tensors: on the IPU, or outside it in streaming memory; whole, or shared by replicas."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from abele.frontends.poptorch.errors import OptionValueError
from abele.frontends.poptorch.options.checked import CheckedOptions
from abele.network import Locations, TensorLocation
from abele.network.locations import AS_USUAL, LEAST_OFF_CHIP, LEAST_SHARDED
from abele.options import UNSET, Option, OptionTable, flag, integer

_IO_TILES = range(32, 193, 2)


class TensorLocationSettings(CheckedOptions):
    """Place of tensors of one kind, and the tiles that load and store them."""

    table: ClassVar[OptionTable] = OptionTable(
        "TensorLocationSettings",
        {
            "minElementsForOffChip": integer(
                UNSET, doc=f"tensors of fewer elements stay on the IPU; {LEAST_OFF_CHIP} where nothing was chosen"
            ),
            "minElementsForReplicatedTensorSharding": integer(
                UNSET, doc=f"replicas keep tensors of fewer elements whole; {LEAST_SHARDED} where nothing was chosen"
            ),
            "onChip": Option(UNSET, bool | None, doc="kept on the IPU, and otherwise in streaming memory"),
            "useReplicatedTensorSharding": flag(
                UNSET, doc="each replica keeps an equal share of the state of optimisers; of nothing else"
            ),
            "useIOTilesToLoad": flag(UNSET, honoured=False, doc="tiles for host traffic load them"),
            "useIOTilesToStore": flag(UNSET, honoured=False, doc="tiles for host traffic store them"),
        },
    )

    def minElementsForOffChip(self, min_elements: int) -> Self:
        """Tensors of fewer elements stay on the IPU."""
        return self.createOrSet(minElementsForOffChip=min_elements)

    def minElementsForReplicatedTensorSharding(self, min_elements: int) -> Self:
        """Replicas keep tensors of fewer elements whole."""
        return self.createOrSet(minElementsForReplicatedTensorSharding=min_elements)

    def useOnChipStorage(self, use: bool | None = True) -> Self:
        """Keep them on the IPU; None to leave it to the compiler."""
        if use is None:
            return self.deleteIfExists("onChip")
        return self.createOrSet(onChip=use)

    def useReplicatedTensorSharding(self, use: bool = True) -> Self:
        """Let each replica keep an equal share of the tensors: of the state of optimisers alone."""
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
            "num_io_tiles": integer(
                UNSET,
                doc="tiles of each IPU that compute nothing, but load and store beside the others; 0 unless chosen",
            ),
            "location_activation": Option(
                {}, dict[str, Any], doc="where activations are kept that wait between stages of a pipeline"
            ),
            "location_weight": Option({}, dict[str, Any], doc="where parameters are kept between their uses"),
            "location_optimizer": Option({}, dict[str, Any], doc="where the state of optimisers is kept"),
            "location_accumulator": Option({}, dict[str, Any], doc="where sums of gradients are kept"),
        },
    )

    def numIOTiles(self, num_tiles: int) -> Self:
        """Set the number of tiles kept for traffic with the host: an even number between 32 and 192."""
        if isinstance(num_tiles, bool) or not isinstance(num_tiles, int) or num_tiles not in _IO_TILES:
            raise OptionValueError("numIOTiles must be an even number between 32 and 192.")
        return self.createOrSet(num_io_tiles=num_tiles)

    def setActivationLocation(self, location: TensorLocationSettings) -> Self:
        """Set the place of activations."""
        return self._locate("activation", location)

    def setWeightLocation(self, location: TensorLocationSettings) -> Self:
        """Set the place of weights."""
        return self._locate("weight", location)

    def setOptimizerLocation(self, location: TensorLocationSettings) -> Self:
        """Set the place of the state of optimisers."""
        return self._locate("optimizer", location)

    def setAccumulatorLocation(self, location: TensorLocationSettings) -> Self:
        """Set the place of sums of gradients."""
        return self._locate("accumulator", location)

    @property
    def io_tiles(self) -> int:
        """Tiles of each IPU that are kept for traffic with the host."""
        chosen: int = self.toDict().get("num_io_tiles", 0)
        return chosen

    def locations(self, *, training: bool, usual: Locations = AS_USUAL) -> Locations:
        """The same for a session; inference has neither optimisers nor sums of gradients.

        Args:
            training: True if the model has a backward pass.
            usual: Place of tensors for which nobody has chosen one.

        Raises:
            InvalidOptionError: Replicas are to share something else than the state of optimisers.
        """
        only_training = {
            "optimiser": _location(self.location_optimizer, usual.optimiser),
            "accumulators": _location(self.location_accumulator, usual.accumulators),
        }
        return Locations(
            weights=_location(self.location_weight, usual.weights),
            activations=_location(self.location_activation, usual.activations),
            **(only_training if training else {}),
        )

    def _locate(self, kind: str, location: TensorLocationSettings) -> Self:
        if not isinstance(location, TensorLocationSettings):
            raise OptionValueError(f"the location of {kind} tensors is a TensorLocationSettings, got {location!r}")
        return self.set(**{f"location_{kind}": location.toDict()})


def _location(chosen: dict[str, Any], usual: TensorLocation) -> TensorLocation:
    """A location of the session for what :class:`TensorLocationSettings` says."""
    on_chip = chosen.get("onChip")
    return TensorLocation(
        on_chip=usual.on_chip if on_chip is None else on_chip,
        sharded=chosen.get("useReplicatedTensorSharding", False),
        min_elements_off_chip=chosen.get("minElementsForOffChip", LEAST_OFF_CHIP),
        min_elements_sharded=chosen.get("minElementsForReplicatedTensorSharding", LEAST_SHARDED),
    )
