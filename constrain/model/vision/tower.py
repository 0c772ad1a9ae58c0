"""``ExLlamaV2VisionTower``: images as embeddings of a text model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch
from tqdm import tqdm

from constrain.errors import GenerationError, ModelError
from constrain.model.config import ExLlamaV2Config
from constrain.model.devices import default_dtype
from constrain.model.embeddings import ExLlamaV2MMEmbedding
from constrain.model.forward_context import ForwardContext
from constrain.model.tensor_files import TensorFiles
from constrain.model.traits import VisionTraits
from constrain.model.vision.config import VisionConfig
from constrain.model.vision.encoder import Encoder, Features
from constrain.model.vision.layers import unrotated
from constrain.model.vision.pixtral import PixtralEncoder, read_pixtral
from constrain.model.vision.qwen import TRAITS as QWEN
from constrain.model.vision.qwen import QwenEncoder, read_qwen
from constrain.model.vision.siglip import SiglipEncoder, read_siglip


class TokenNames(Protocol):
    """The part of a tokenizer that a tower needs."""

    def single_id(self, token: str) -> int | None:
        """Id of the token with exactly this text."""


class ExLlamaV2VisionTower:
    """The vision tower of a multimodal model, with the projector to the embeddings of its text model.

    Towers of Pixtral and Mistral 3, of Qwen2-VL, Qwen2.5-VL and Qwen3-VL, and of Gemma 3 are read.

    Attributes:
        config: the config of the model.
        vision: that of the tower.
        modules: its parts, in the order of computation.
        device, dtype: of weights and computation, once loaded.
        loaded: whether the weights are loaded.
        image_token: the token in whose place embeddings stand.
    """

    def __init__(self, config: ExLlamaV2Config) -> None:
        """Build the modules of a prepared config, without weights.

        Raises:
            ConfigError: a value is missing, of the wrong type, out of bounds or not supported.
            ModelError: the model has no supported vision tower.
            WeightsError: a tensor is missing, or of the wrong shape or type.
        """
        traits = config.arch.vision if config.vision_model_type else None
        if traits is None or config.files is None:
            raise ModelError(
                f"{config.model_dir}: has no supported vision tower; those of Mistral 3, Pixtral, Qwen2-VL, "
                "Qwen2.5-VL, Qwen3-VL and Gemma 3 are supported"
            )
        self.config, self._files = config, config.files
        self._encoder = _encoder(Path(config.model_config), traits, config.files, config.hidden_size)
        self.vision: VisionConfig = self._encoder.config
        self.modules, self.words = self._encoder.modules, self._encoder.words
        self.image_token = self.words.placeholder
        self.device, self.dtype, self.loaded = self._encoder.device, self._encoder.dtype, False
        for key, shape in self._encoder.tensors():
            self._files.require(key, shape)

    def load(self, progress: bool = False) -> None:
        """Load the weights, to the first GPU or the CPU where there is none.

        Args:
            progress: show a bar on the console.

        Raises:
            WeightsError: a file changed or vanished since the config was prepared.
        """
        self.device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
        first, _ = next(self._encoder.tensors())
        self.dtype = self.config.compute_dtype or default_dtype(self.device, self._files.dtype(first))
        self._encoder.device, self._encoder.dtype = self.device, self.dtype
        with self._files.kept_open() as source:
            for module in tqdm(self.modules, desc="Loading", disable=not progress):
                module.load(source, self.device, self.dtype)
        self.loaded = True

    def get_image_embeddings(
        self,
        model: Any,
        tokenizer: TokenNames,
        image: Any,
        text_alias: str | None = None,
        embeddings_cpu: bool = True,
    ) -> ExLlamaV2MMEmbedding:
        """Compute the embeddings by which a prompt refers to an image, with those of the tokens around it.

        An embedding stands for a square of patches. For Pixtral, each row is followed by the embedding of the
        token ``[IMG_BREAK]``, the last one by that of ``[IMG_END]``. For Qwen and Gemma, those of the tokens that begin
        and end an image are included (``pre_tokens`` and ``post_tokens``).

        Args:
            model: the loaded text model.
            tokenizer: its tokenizer.
            image: a Pillow image.
            text_alias: see :class:`~constrain.model.ExLlamaV2MMEmbedding`.
            embeddings_cpu: keep the embeddings on the CPU.

        Raises:
            ArgumentError: ``image`` is no image, or of a form that is not read.
            GenerationError: tower or model are not loaded, or the tokenizer lacks the tokens around images.
        """
        found = self.embeddings_of_pixels(model, tokenizer, self.pixels(image), text_alias, framed=True)
        if not embeddings_cpu:
            found.embeddings = found.embeddings.to(self.device)
        return found

    def expanded(self, text: str) -> str:
        """Return a rendered chat with all that the model reads around images."""
        return text.replace(self.words.written, self.words.expanded)

    def length(self, pixels: torch.Tensor) -> int:
        """Return the number of embeddings of what :meth:`pixels` returns, those after its rows included."""
        rows, columns = self._encoder.size(pixels)
        return rows * (columns + 1 if self.words.row_end else columns)

    def pixels(self, image: Any) -> torch.Tensor:
        """Return the input of the tower for an image, see :func:`constrain.model.vision.images.pixels_of`.

        Raises:
            ArgumentError: ``image`` is no image, or of a form that is not read.
        """
        return self._encoder.pixels(image)

    def embeddings_of_pixels(
        self,
        model: Any,
        tokenizer: TokenNames,
        pixels: torch.Tensor,
        text_alias: str | None = None,
        framed: bool = False,
    ) -> ExLlamaV2MMEmbedding:
        """:meth:`get_image_embeddings` of what :meth:`pixels` returns, on the CPU.

        With ``framed`` the tokens before and after the image are within, else only those after its rows.
        """
        if not model.loaded:
            raise GenerationError("the text model is not loaded; call load() first")
        words = self.words
        row_ends = self._states(model, tokenizer, words.row_end, words.image_end)
        frame = self._states(model, tokenizer, words.before, words.after) if framed else None
        found = self._features(pixels)
        rows, columns = found.grid.shape[:2]
        grid = found.grid.cpu()
        if row_ends is not None:
            after = row_ends[:1].expand(rows, -1).clone()
            after[-1] = row_ends[1]
            grid = torch.cat((grid, after.unsqueeze(1).to(grid)), dim=1)
        embeddings, around = grid.flatten(0, 1), 0 if frame is None else 1
        if frame is not None:
            embeddings = torch.cat((frame[:1].to(embeddings), embeddings, frame[1:].to(embeddings)))
        block = ExLlamaV2MMEmbedding(
            model, embeddings, text_alias, (1, rows, columns), pre_tokens=around, post_tokens=around
        )
        block.added = None if found.added is None else found.added.flatten(1, 2).cpu()
        return block

    def features(self, pixels: torch.Tensor) -> torch.Tensor:
        """Compute the embeddings of an image alone.

        Args:
            pixels: float32 ``[3, height, width]``, both multiples of ``vision.cell``.

        Returns:
            ``[rows, columns, hidden size of the text model]``.

        Raises:
            GenerationError: the tower is not loaded.
        """
        return self._features(pixels).grid

    def _features(self, pixels: torch.Tensor) -> Features:
        if not self.loaded:
            raise GenerationError("the vision tower is not loaded; call load() first")
        with torch.inference_mode():
            return self._encoder.features(pixels)

    def _states(self, model: Any, tokenizer: TokenNames, *tokens: str | None) -> torch.Tensor | None:
        """Return the embeddings ``[2, hidden]`` of two tokens; ``None`` if there are none of these."""
        names = [token for token in tokens if token is not None]
        if not names:
            return None
        ids = [tokenizer.single_id(name) for name in names]
        if None in ids:
            raise GenerationError(f"the tokenizer has no {' and '.join(names)}, which stand around images")
        context = ForwardContext(unrotated(self.dtype))
        with torch.inference_mode():
            found: torch.Tensor = model.modules[0].forward(torch.tensor([ids]), context)[0].cpu()
        return found


def _encoder(path: Path, traits: VisionTraits, files: TensorFiles, text_size: int) -> Encoder:
    """Build the tower of a kind."""
    if traits.kind in QWEN:
        return QwenEncoder(read_qwen(path, traits), files, text_size)
    if traits.kind == "siglip":
        return SiglipEncoder(read_siglip(path, traits), files, text_size)
    return PixtralEncoder(read_pixtral(path, traits), files, text_size)
