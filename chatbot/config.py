"""Settings: what may be configured, its defaults, and the one place where a configuration file becomes values."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """A table of the configuration: unknown keys are errors, values are not changed after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelSettings(Section):
    """`[model]`: which model answers, and how it is called."""

    name: str = Field("local/smollm2-135m", min_length=1)
    """`local/smollm2-135m`, `local/<path to a .gguf file>`, `scripted`, or any LiteLLM model string."""
    api_key: str = ""
    """A key, or `env:VARIABLE`; empty leaves it to the provider's usual environment variable."""
    api_base: str = ""
    """Address of an OpenAI-compatible server; empty for the provider's own."""
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = None
    max_output_tokens: int = Field(1024, ge=1)
    context_window: int = Field(0, ge=0)
    """Tokens; 0 takes the model's own, or 8192 where nobody knows it."""
    timeout_s: float = Field(60.0, gt=0)
    """Longest wait for the first chunk, and between chunks."""
    retries: int = Field(2, ge=0, le=10)
    """Further tries after a transient failure, as long as nothing has arrived."""
    script: tuple[str, ...] = ()
    """What the model `scripted` replies, in turn and then again from the start."""
