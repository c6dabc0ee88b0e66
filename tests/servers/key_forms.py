"""Keys in the forms that providers give them, made up here, and the same each time."""

import random
import string

_RANDOM = random.Random(5)
_ALL = string.ascii_letters + string.digits
_HEX = "0123456789abcdef"


def _some(count: int, characters: str = _ALL) -> str:
    return "".join(_RANDOM.choice(characters) for _ in range(count - 1)) + _RANDOM.choice(string.digits)


KEY_FORMS = {
    "openai": f"sk-{_some(48)}", "openai project": f"sk-proj-{_some(60)}", "openai, short": "sk-test-0123456789abcdef",
    "openai, masked": "sk-ab****************wx9z", "anthropic": f"sk-ant-api03-{_some(93)}AA",
    "openrouter": f"sk-or-v1-{_some(64, _HEX)}", "langfuse": f"pk-lf-{_some(32)}", "nvidia": f"nvapi-{_some(64)}",
    "replicate": f"r8_{_some(37)}", "fireworks": f"fw_{_some(24)}", "databricks": f"dapi{_some(32, _HEX)}",
    "slack bot": f"xoxb-{_some(11, string.digits)}-{_some(12, string.digits)}-{_some(24)}",
    "slack user": f"xoxp-{'-'.join(_some(12, string.digits) for _ in range(3))}-{_some(32, _HEX)}",
    "groq": f"gsk_{_some(52)}", "hugging face": f"hf_{_some(34)}", "xai": f"xai-{_some(80)}",
    "google": f"AIza{_some(35)}", "aws": f"AKIA{_some(15, string.ascii_uppercase)[:-1]}Q7",
    "github": f"ghp_{_some(36)}", "github oauth": f"gho_{_some(36)}", "gitlab": f"glpat-{_some(20)}",
    "perplexity": f"pplx-{_some(48)}", "together": f"tgp_v1_{_some(43)}", "cerebras": f"csk-{_some(48)}",
    "jina": f"jina_{_some(60)}", "voyage": f"pa-{_some(43)}", "tavily": f"tvly-{_some(32)}",
    "json web token": f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.{_some(43)}",
    "of a token of ours": f"cbt_{_some(43)}",
}  # fmt: skip
