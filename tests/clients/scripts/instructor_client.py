# /// script
# requires-python = ">=3.11"
# dependencies = ["instructor>=1.14"]
# ///
"""Instructor: a validated model by each of its modes, a list of them, and a stream of partial ones."""

import instructor
from openai import OpenAI
from pydantic import BaseModel


class User(BaseModel):
    name: str
    age: int


EXTRACT = {"model": "ada", "messages": [{"role": "user", "content": "Jason is 25 years old."}]}

for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON, instructor.Mode.JSON_SCHEMA, instructor.Mode.MD_JSON):
    client = instructor.from_openai(OpenAI(), mode=mode)
    assert isinstance(client.chat.completions.create(response_model=User, max_retries=0, **EXTRACT), User)

client = instructor.from_openai(OpenAI())
assert list(client.chat.completions.create_iterable(response_model=User, **EXTRACT))
assert list(client.chat.completions.create_partial(response_model=User, **EXTRACT))[-1].age == 7
user, completion = client.chat.completions.create_with_completion(response_model=User, **EXTRACT)
assert completion.usage.total_tokens
