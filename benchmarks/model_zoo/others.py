"""Networks of sequences, tables and distributions, written out in plain PyTorch."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from model_zoo.entry import Batch, ModelEntry, WithLoss

WORDS = 1000
TAGS = 20


def loss_of_places(logits: Tensor, target: Tensor) -> Tensor:
    """Cross entropy of logits [batch, places, classes]."""
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def sentences(count: int, generator: torch.Generator) -> Batch:
    """Random words and a tag for each."""
    return (
        torch.randint(0, WORDS, (count, 48), generator=generator),
        torch.randint(0, TAGS, (count, 48), generator=generator),
    )


class Tagger(nn.Module):
    """Words, a recurrent network of two layers in both directions, and tags."""

    def __init__(self, kind: type[nn.Module], width: int = 128) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.layers = kind(width, width, num_layers=2, batch_first=True, bidirectional=True)
        self.tags = nn.Linear(2 * width, TAGS)

    def forward(self, text: Tensor) -> Tensor:
        """Logits [batch, places, tags]."""
        return self.tags(self.layers(self.words(text))[0])


class Vae(nn.Module):
    """A variational autoencoder whose noise is an input, so that runs can be compared."""

    def __init__(self, inputs: int = 784, hidden: int = 400, latent: int = 20) -> None:
        super().__init__()
        self.encode = nn.Linear(inputs, hidden)
        self.mean, self.spread = nn.Linear(hidden, latent), nn.Linear(hidden, latent)
        self.decode = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, inputs))

    def forward(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Reconstruction and negative evidence bound."""
        hidden = F.relu(self.encode(x))
        mean, spread = self.mean(hidden), self.spread(hidden)
        made = self.decode(mean + noise * torch.exp(0.5 * spread))
        error = F.binary_cross_entropy_with_logits(made, x, reduction="sum")
        divergence = -0.5 * torch.sum(1 + spread - mean.pow(2) - spread.exp())
        return made, (error + divergence) / x.shape[0]


def pictures_and_noise(count: int, generator: torch.Generator) -> Batch:
    """Flat pictures and normally distributed noise."""
    return torch.rand(count, 784, generator=generator), torch.randn(count, 20, generator=generator)


class Coupling(nn.Module):
    """An affine coupling: one half of the features scales and shifts the other."""

    def __init__(self, features: int, hidden: int, *, swap: bool) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(features // 2, hidden), nn.Tanh(), nn.Linear(hidden, features))
        self.swap = swap

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Result of the coupling, and the logarithm of the change of volume."""
        a, b = x.chunk(2, dim=1)
        if self.swap:
            a, b = b, a
        scale, shift = self.net(a).chunk(2, dim=1)
        scale = torch.tanh(scale)
        b = b * scale.exp() + shift
        return torch.cat([b, a] if self.swap else [a, b], dim=1), scale.sum(dim=1)


class Flow(nn.Module):
    """A normalising flow of affine couplings (RealNVP)."""

    def __init__(self, features: int = 64, hidden: int = 128, depth: int = 6) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Coupling(features, hidden, swap=bool(i % 2)) for i in range(depth))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Base variables and mean negative log-likelihood."""
        volume = torch.zeros(x.shape[0])
        for layer in self.layers:
            x, change = layer(x)
            volume = volume + change
        likelihood = -0.5 * (x**2 + math.log(2 * math.pi)).sum(dim=1) + volume
        return x, -likelihood.mean()


class Dlrm(nn.Module):
    """A recommender: embeddings of categories, a network of numbers, products of all pairs of both."""

    def __init__(self, tables: int = 8, rows: int = 2000, width: int = 32) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(pairs + width, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, numbers: Tensor, categories: Tensor, clicked: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and loss."""
        dense = self.bottom(numbers)
        found = [table(categories[:, i]) for i, table in enumerate(self.tables)]
        features = torch.stack([dense, *found], dim=1)
        products = torch.bmm(features, features.transpose(1, 2))
        rows, columns = torch.tril_indices(features.shape[1], features.shape[1], offset=-1)
        logits = self.top(torch.cat([dense, products[:, rows, columns]], dim=1))[:, 0]
        return logits, F.binary_cross_entropy_with_logits(logits, clicked)


def clicks(count: int, generator: torch.Generator) -> Batch:
    """Numbers, four categories in each of eight tables, and whether there was a click."""
    return (
        torch.randn(count, 13, generator=generator),
        torch.randint(0, 2000, (count, 8, 4), generator=generator),
        torch.randint(0, 2, (count,), generator=generator).float(),
    )


class DeepLob(nn.Module):
    """Limit order books: convolutions over levels, an inception module and an LSTM."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.levels = nn.Sequential(
            *self._block(1, width, (1, 2), (1, 2)),
            *self._block(width, width, (1, 2), (1, 2)),
            *self._block(width, width, (1, 10), 1),
        )
        self.short = self._branch(width, 3)
        self.long = self._branch(width, 5)
        self.pool = nn.Sequential(nn.MaxPool2d((3, 1), 1, (1, 0)), nn.Conv2d(width, 2 * width, 1), nn.LeakyReLU(0.01))
        self.lstm = nn.LSTM(6 * width, 64, batch_first=True)
        self.classify = nn.Linear(64, 3)

    @staticmethod
    def _block(inputs: int, width: int, kernel: tuple[int, int], stride: int | tuple[int, int]) -> list[nn.Module]:
        return [
            nn.Conv2d(inputs, width, kernel, stride),
            nn.LeakyReLU(0.01),
            nn.BatchNorm2d(width),
            nn.Conv2d(width, width, (4, 1), padding="same"),
            nn.LeakyReLU(0.01),
            nn.BatchNorm2d(width),
        ]

    @staticmethod
    def _branch(width: int, extent: int) -> nn.Module:
        first = nn.Conv2d(width, 2 * width, 1)
        second = nn.Conv2d(2 * width, 2 * width, (extent, 1), padding="same")
        return nn.Sequential(first, nn.LeakyReLU(0.01), second, nn.LeakyReLU(0.01))

    def forward(self, x: Tensor) -> Tensor:
        """Logits [batch, 3]."""
        x = self.levels(x)
        x = torch.cat([self.short(x), self.long(x), self.pool(x)], dim=1)
        steps = x.squeeze(3).permute(0, 2, 1)
        return self.classify(self.lstm(steps)[0][:, -1])


def books(count: int, generator: torch.Generator) -> Batch:
    """A hundred states of ten levels of an order book, and a movement."""
    return torch.randn(count, 1, 100, 40, generator=generator), torch.randint(0, 3, (count,), generator=generator)


class ConformerBlock(nn.Module):
    """Half a feed-forward layer, attention, a depthwise convolution, and the other half."""

    def __init__(self, width: int, heads: int, kernel: int) -> None:
        super().__init__()
        self.first, self.second = self._feed_forward(width), self._feed_forward(width)
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.before = nn.LayerNorm(width)
        self.expand = nn.Conv1d(width, 2 * width, 1)
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.normal = nn.BatchNorm1d(width)
        self.leave = nn.Conv1d(width, width, 1)
        self.last = nn.LayerNorm(width)

    @staticmethod
    def _feed_forward(width: int) -> nn.Module:
        return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """[batch, time, width] as it came."""
        x = x + 0.5 * self.first(x)
        normed = self.norm(x)
        x = x + self.attention(normed, normed, normed, need_weights=False)[0]
        inner = F.glu(self.expand(self.before(x).transpose(1, 2)), dim=1)
        x = x + self.leave(F.silu(self.normal(self.depthwise(inner)))).transpose(1, 2)
        return self.last(x + 0.5 * self.second(x))


class Conformer(nn.Module):
    """Conformer blocks over spectra, and a class for each moment."""

    def __init__(self, width: int = 144, depth: int = 2) -> None:
        super().__init__()
        self.enter = nn.Linear(80, width)
        self.blocks = nn.Sequential(*(ConformerBlock(width, 4, 15) for _ in range(depth)))
        self.leave = nn.Linear(width, TAGS)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [batch, time, classes]."""
        return self.leave(self.blocks(self.enter(x)))


def spectra(count: int, generator: torch.Generator) -> Batch:
    """Spectra of a hundred moments and a class for each."""
    return torch.randn(count, 100, 80, generator=generator), torch.randint(0, TAGS, (count, 100), generator=generator)


class SelectiveScan(nn.Module):
    """A state-space layer whose steps depend on its input (Mamba's recurrence, written as a loop over time)."""

    def __init__(self, width: int, states: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.enter = nn.Linear(width, 2 * width)
        self.mix = nn.Conv1d(width, width, 4, padding=3, groups=width)
        self.chosen = nn.Linear(width, 2 * states + 1)
        self.step = nn.Parameter(torch.zeros(width))
        self.decay = nn.Parameter(torch.log(torch.arange(1, states + 1).float()).repeat(width, 1))
        self.skip = nn.Parameter(torch.ones(width))
        self.leave = nn.Linear(width, width)
        self.states = states

    def forward(self, x: Tensor) -> Tensor:
        """[batch, time, width] as it came."""
        inner, gate = self.enter(self.norm(x)).chunk(2, dim=-1)
        inner = F.silu(self.mix(inner.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        step, read, written = self.chosen(inner).split([1, self.states, self.states], dim=-1)
        step = F.softplus(step + self.step)
        kept = torch.exp(-step[..., None] * torch.exp(self.decay))
        added = (step * inner)[..., None] * written[:, :, None]
        state, states = torch.zeros_like(kept[:, 0]), []
        for moment in range(x.shape[1]):
            state = kept[:, moment] * state + added[:, moment]
            states.append(state)
        y = (torch.stack(states, dim=1) * read[:, :, None]).sum(dim=-1) + self.skip * inner
        return x + self.leave(y * F.silu(gate))


class Mamba(nn.Module):
    """Words and layers of selective scans."""

    def __init__(self, width: int = 64, depth: int = 2, states: int = 8) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.layers = nn.Sequential(*(SelectiveScan(width, states) for _ in range(depth)))
        self.leave = nn.Linear(width, TAGS)

    def forward(self, text: Tensor) -> Tensor:
        """Logits [batch, places, tags]."""
        return self.leave(self.layers(self.words(text)))


class Mixer(nn.Module):
    """An MLP-Mixer: linear layers over patches, then over channels."""

    def __init__(self, size: int = 32, patch: int = 4, width: int = 128, depth: int = 4) -> None:
        super().__init__()
        patches = (size // patch) ** 2
        self.enter = nn.Conv2d(3, width, patch, patch)
        self.across = nn.ModuleList(self._layers(width, patches, 64) for _ in range(depth))
        self.within = nn.ModuleList(self._layers(width, width, 512) for _ in range(depth))
        self.leave = nn.Linear(width, 10)

    @staticmethod
    def _layers(width: int, extent: int, hidden: int) -> nn.ModuleList:
        return nn.ModuleList(
            [nn.LayerNorm(width), nn.Sequential(nn.Linear(extent, hidden), nn.GELU(), nn.Linear(hidden, extent))]
        )

    def forward(self, x: Tensor) -> Tensor:
        """Logits [batch, 10]."""
        x = self.enter(x).flatten(2).transpose(1, 2)
        for (norm_a, across), (norm_b, within) in zip(self.across, self.within, strict=True):
            x = x + across(norm_a(x).transpose(1, 2)).transpose(1, 2)
            x = x + within(norm_b(x))
        return self.leave(x.mean(dim=1))


def images(count: int, generator: torch.Generator) -> Batch:
    """Small images of noise, and a class for each."""
    return torch.randn(count, 3, 32, 32, generator=generator), torch.randint(0, 10, (count,), generator=generator)


class ResidualBlock(nn.Module):
    """Group norms and convolutions, told the time by a shift of channels."""

    def __init__(self, inputs: int, outputs: int, time: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, inputs), nn.GroupNorm(8, outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time = nn.Linear(time, outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """[batch, outputs, height, width]."""
        h = self.conv1(F.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class DiffusionUNet(nn.Module):
    """The denoiser of a diffusion model: a U-Net with attention in its middle, which knows the time step."""

    def __init__(self, width: int = 32, time: int = 128) -> None:
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.enter = nn.Conv2d(3, width, 3, padding=1)
        self.down1, self.down2 = ResidualBlock(width, width, time), ResidualBlock(width, 2 * width, time)
        self.shrink1 = nn.Conv2d(width, width, 3, 2, 1)
        self.shrink2 = nn.Conv2d(2 * width, 2 * width, 3, 2, 1)
        self.middle = ResidualBlock(2 * width, 2 * width, time)
        self.norm = nn.GroupNorm(8, 2 * width)
        self.qkv, self.mixed = nn.Conv2d(2 * width, 6 * width, 1), nn.Conv2d(2 * width, 2 * width, 1)
        self.up2, self.up1 = ResidualBlock(4 * width, width, time), ResidualBlock(2 * width, width, time)
        self.leave = nn.Conv2d(width, 3, 3, padding=1)

    def _clock(self, step: Tensor) -> Tensor:
        rates = torch.exp(-math.log(10000) * torch.arange(self.width // 2) / (self.width // 2))
        angles = step[:, None].float() * rates
        return self.time(torch.cat([angles.sin(), angles.cos()], dim=1))

    def _attend(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, 3, 4, channels // 4, height * width).transpose(3, 4).unbind(1)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(2, 3).reshape(x.shape)
        return x + self.mixed(mixed)

    def forward(self, image: Tensor, step: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """The noise found in the image, and its squared error."""
        time = self._clock(step)
        first = self.down1(self.enter(image), time)
        second = self.down2(self.shrink1(first), time)
        x = self._attend(self.middle(self.shrink2(second), time))
        x = self.up2(torch.cat([F.interpolate(x, scale_factor=2.0), second], dim=1), time)
        x = self.up1(torch.cat([F.interpolate(x, scale_factor=2.0), first], dim=1), time)
        found = self.leave(x)
        return found, F.mse_loss(found, noise)


def noisy_images(count: int, generator: torch.Generator) -> Batch:
    """Images with noise, how far the noise has come, and the noise."""
    image, noise = (torch.randn(count, 3, 32, 32, generator=generator) for _ in range(2))
    return image, torch.randint(0, 1000, (count,), generator=generator), noise


class Generator(nn.Module):
    """The generator of a DCGAN."""

    def __init__(self, latent: int = 64, width: int = 32) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.ConvTranspose2d(latent, 4 * width, 4, bias=False)]
        for inputs, outputs in ((4, 2), (2, 1)):
            layers += [
                nn.BatchNorm2d(inputs * width),
                nn.ReLU(),
                nn.ConvTranspose2d(inputs * width, outputs * width, 4, 2, 1, bias=False),
            ]
        layers += [nn.BatchNorm2d(width), nn.ReLU(), nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh()]
        self.layers = nn.Sequential(*layers)

    def forward(self, z: Tensor) -> Tensor:
        """Images [batch, 3, 32, 32]."""
        return self.layers(z[:, :, None, None])


def latents(count: int, generator: torch.Generator) -> Batch:
    """Latent variables, and the images that they are to become."""
    return torch.randn(count, 64, generator=generator), torch.rand(count, 3, 32, 32, generator=generator)


class Translator(nn.Module):
    """PyTorch's own transformer, encoder and decoder, with a causal mask."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(64, width)
        self.network = nn.Transformer(width, 4, 2, 2, 512, dropout=0.0, batch_first=True)
        self.leave = nn.Linear(width, WORDS)

    def forward(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and loss of each next word."""
        read, written = target[:, :-1], target[:, 1:]
        mask = nn.Transformer.generate_square_subsequent_mask(read.shape[1])
        a = self.words(source) + self.places(torch.arange(source.shape[1]))
        b = self.words(read) + self.places(torch.arange(read.shape[1]))
        logits = self.leave(self.network(a, b, tgt_mask=mask, tgt_is_causal=True))
        return logits, loss_of_places(logits, written)


def translations(count: int, generator: torch.Generator) -> Batch:
    """Sentences in two languages."""
    return tuple(torch.randint(0, WORDS, (count, 33), generator=generator) for _ in range(2))


OTHERS = (
    ModelEntry("lstm-tagger", 16, lambda: WithLoss(Tagger(nn.LSTM), loss_of_places), sentences),
    ModelEntry("gru-tagger", 16, lambda: WithLoss(Tagger(nn.GRU), loss_of_places), sentences),
    ModelEntry("vae", 64, Vae, pictures_and_noise),
    ModelEntry("flow", 128, Flow, lambda n, g: (torch.randn(n, 64, generator=g),)),
    ModelEntry("dlrm", 128, Dlrm, clicks),
    ModelEntry("deeplob", 16, lambda: WithLoss(DeepLob(), F.cross_entropy), books),
    ModelEntry("conformer", 8, lambda: WithLoss(Conformer(), loss_of_places), spectra),
    ModelEntry("mamba", 8, lambda: WithLoss(Mamba(), loss_of_places), sentences),
    ModelEntry("mixer", 16, lambda: WithLoss(Mixer(), F.cross_entropy), images),
    ModelEntry("diffusion-unet", 8, DiffusionUNet, noisy_images),
    ModelEntry("dcgan", 16, lambda: WithLoss(Generator(), F.mse_loss), latents),
    ModelEntry("transformer", 8, Translator, translations),
)
