"""Keys in the forms that providers give them, made up here, and the same each time."""

import random

HEX = "0123456789abcdef"
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
WORD = LETTERS + "0123456789"
URL_SAFE = WORD + "-_"


def made(length: int, alphabet: str = WORD) -> str:
    """Return characters of the alphabet, the same each time."""
    return "".join(random.Random(f"{length} {alphabet}").choices(alphabet, k=length))


KEY_FORMS = {
    "openai": f"sk-{made(48)}", "openai, with its mark": f"sk-{made(20)}T3BlbkFJ{made(20)}",
    "openai, of a project": f"sk-proj-{made(120, URL_SAFE)}",
    "openai, of a service": f"sk-svcacct-{made(120, URL_SAFE)}", "anthropic": f"sk-ant-api03-{made(93, URL_SAFE)}AA",
    "openrouter": f"sk-or-v1-{made(64, HEX)}", "groq": f"gsk_{made(52)}", "xai": f"xai-{made(80)}",
    "deepseek": f"sk-{made(32, HEX)}", "hugging face, without a digit": f"hf_{made(34, LETTERS)}",
    "google": f"AIza{made(35, URL_SAFE)}", "nvidia": f"nvapi-{made(64, URL_SAFE)}", "perplexity": f"pplx-{made(48)}",
    "replicate": f"r8_{made(37)}", "together": f"tgp_v1_{made(43, URL_SAFE)}",
    "aws, without a digit": "AKIAQWERTYUIOPASDFGH",
    "aws, for a while": f"ASIA{made(16, 'QWERTYUIOPASDFGHJKLZXCVBNM234567')}", "github": f"ghp_{made(36)}",
    "github, finer": f"github_pat_{made(22)}_{made(59)}", "gitlab": f"glpat-{made(20)}",
    "slack": f"xoxb-123456789012-123456789012-{made(24)}",
    "stripe, without a digit": "sk_live_abcdefghijklmnopqrstuvwx", "telegram": f"123456789:AA{made(33, URL_SAFE)}",
    "jwt": f"eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.{made(43, URL_SAFE)}",
    "gitlab, longer": f"glpat-{made(27)}.01.{made(9)}", "google, of a client": f"GOCSPX-{made(28, URL_SAFE)}",
    "elevenlabs": f"sk_{made(48, HEX)}", "atlassian": f"ATATT3xFfGF0{made(172, URL_SAFE)}={made(8, HEX)}",
    "airtable": f"pat{made(14)}.{made(64, HEX)}", "mailchimp": f"{made(32, HEX)}-us14",
    "one of ours": f"cbt_{made(43, URL_SAFE)}", "openai, short": "sk-test-0123456789abcdef",
    "langfuse": f"pk-lf-{made(32)}", "fireworks": f"fw_{made(24)}", "databricks": f"dapi{made(32, HEX)}",
    "slack, of a user": f"xoxp-123456789012-123456789012-123456789012-{made(32, HEX)}", "jina": f"jina_{made(60)}",
    "github, of an app": f"gho_{made(36)}", "cerebras": f"csk-{made(48)}", "voyage": f"pa-{made(43)}",
    "tavily": f"tvly-{made(32)}",
}  # fmt: skip
