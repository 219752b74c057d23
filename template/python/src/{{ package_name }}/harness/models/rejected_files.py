"""Recognizes requests with files that the model does not read."""

import logging
import re
from collections.abc import Collection

from ..contract import AgentError, File
from ..files import unsupported
from ..log import causes_of, describe
from .context_length import status_of, texts_of

# Error texts about files, by the kind of files, of Bedrock, OpenAI, Azure, Anthropic, DeepSeek,
# Ollama, LM Studio, OpenRouter, llama.cpp, vLLM and Qwen.
REJECTIONS = {
    "images": re.compile(
        "support the image content block|image_url is only supported by certain models"
        "|does not support image|endpoints found that support image input"
        "|image input is not supported|at most 0 image|unknown variant `image",
        re.IGNORECASE,
    ),
    "documents": re.compile(
        "support the document content block|doesn't support documents|does not support PDF"
        "|does not support document|unknown variant `(file|document)|unknown part type: file"
        "|invalid value: .?file",
        re.IGNORECASE,
    ),
}
# Error texts about all files, of Groq, vLLM and mlx-lm.
REJECTS_ALL = re.compile(
    r"content must be a string|is not a multimodal model|only .?text.? content type is supported",
    re.IGNORECASE,
)
# HTTP statuses of these errors: OpenRouter sends 404, llama.cpp 500 and vLLM 501. An error in a
# stream has no status or the status of the stream.
STATUSES = {None, 200, 400, 404, 415, 422, 500, 501, 502}

log = logging.getLogger(__name__)


def kind_of(media_type: str) -> str:
    """Return the kind of a file: images, texts or documents."""
    if media_type.startswith("image/"):
        return "images"
    return "texts" if media_type.startswith("text/") else "documents"


def rejected_kinds(error: BaseException, sent: Collection[str]) -> list[str]:
    """Return the kinds of files because of which a model rejected a request.

    `sent` are the media types of the files in the request. Every model reads texts.
    """
    causes = [*causes_of(error)]
    if any(isinstance(it, AgentError) or status_of(it) not in STATUSES for it in causes):
        return []
    texts = texts_of(causes)
    sent_kinds = {*map(kind_of, sent)}
    kinds = [kind for kind in REJECTIONS if kind in sent_kinds]
    named = [kind for kind in kinds if any(map(REJECTIONS[kind].search, texts))]
    return kinds if any(map(REJECTS_ALL.search, texts)) else named


class AcceptedTypes:
    """The media types that the model of a turn accepts.

    A model may accept fewer types than its provider.
    """

    def __init__(self, types: Collection[str], files: Collection[File]) -> None:
        """`types` are the provider's types, and `files` are those of the turn's request."""
        self.types = types
        self._files = files

    def reduce(self, error: Exception, sent: Collection[str]) -> bool:
        """Remove the types that the model rejected; return whether there are any.

        `sent` are the media types of the files in the rejected request. The next request has notes
        instead of rejected files of tools and of earlier turns. Raises `unsupported_file` if the
        turn's request has such files.
        """
        kinds = rejected_kinds(error, {*sent} & {*self.types})
        if not kinds:
            return False
        self.types = [it for it in self.types if kind_of(it) not in kinds]
        names = " or ".join(kinds)
        if any(kind_of(file.media_type) in kinds for file in self._files):
            failure = unsupported(f"The model does not read {names}", self.types)
            failure.detail = describe(error)
            raise failure from error
        log.warning("model: it does not read %s: set FILE_TYPES in the model module", names)
        return True
