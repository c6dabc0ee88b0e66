"""LangChain: chat, streams, tools, structured output by each of its methods, and embeddings."""

from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel, Field


class Joke(BaseModel):
    """Joke to tell user."""

    setup: str = Field(description="The setup of the joke")
    punchline: str = Field(description="The punchline to the joke")


@tool
def multiply(a: int, b: int) -> int:
    """Multiply a and b."""
    return a * b


llm = ChatOpenAI(model="ada", temperature=0, stop_sequences=["Observation:"])
reply = llm.invoke([SystemMessage("You translate."), HumanMessage("Which number has the locker at the gym?")])
assert "4711" in str(reply.content)
assert "".join(str(chunk.content) for chunk in llm.stream("Say this."))
assert len(llm.batch(["one", "two"])) == 2

for choice in ("auto", "any", "multiply"):
    bound = llm.bind_tools([multiply], tool_choice=choice)
    asked = bound.invoke("What is 3 * 12?")
    assert [call["name"] for call in asked.tool_calls] == ["multiply"]
answer = llm.bind_tools([multiply]).invoke(
    [HumanMessage("What is 3 * 12?"), asked, ToolMessage("36", tool_call_id=asked.tool_calls[0]["id"])]
)
assert "36" in str(answer.content)

for method in ("json_schema", "function_calling"):
    assert isinstance(llm.with_structured_output(Joke, method=method).invoke("Tell me a joke about cats."), Joke)
assert llm.with_structured_output(None, method="json_mode").invoke("Tell me a joke, as JSON.")

responses = ChatOpenAI(model="ada", use_responses_api=True)
assert responses.invoke("Hello").text
assert isinstance(responses.with_structured_output(Joke).invoke("Tell me a joke."), Joke)

embeddings = OpenAIEmbeddings(model="ada", check_embedding_ctx_length=False)
assert len(embeddings.embed_documents(["hello", "world"])) == 2
