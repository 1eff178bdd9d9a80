"""A chat model that needs no key and no network: it follows a script, but streams and calls tools as a real one does.

Used by `graph.py`. Replace it by any LangChain chat model; nothing else in the example changes.
"""

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import LanguageModelInput
from langchain_core.language_models.chat_models import BaseChatModel, agenerate_from_stream
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

GREETING = "Hello! Give me two numbers and I will multiply them with my tool."
NUMBER = re.compile(r"-?\d+")


class ScriptedModel(BaseChatModel):
    """Two numbers in the last human message: call the tool `multiply`, then answer with its result; else: greet."""

    seconds_per_token: float = 0.03

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        first, *rest = script(messages)
        whole = sum(rest, first)
        message = AIMessage(content=whole.content, tool_calls=whole.tool_calls, id=whole.id)
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return await agenerate_from_stream(self._astream(messages, stop, run_manager, **kwargs))

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for message in script(messages):
            await asyncio.sleep(self.seconds_per_token)
            chunk = ChatGenerationChunk(message=message)
            if run_manager:
                await run_manager.on_llm_new_token(str(message.content), chunk=chunk)
            yield chunk


def script(messages: Sequence[BaseMessage]) -> list[AIMessageChunk]:
    """The next message of the conversation, in the pieces in which it is streamed."""
    last = messages[-1]
    if isinstance(last, ToolMessage):
        return words(answer(messages))
    if isinstance(last, HumanMessage) and len(numbers := NUMBER.findall(last.text)) >= 2:
        return tool_call({"a": int(numbers[0]), "b": int(numbers[1])})
    return words(GREETING)


def answer(messages: Sequence[BaseMessage]) -> str:
    """One sentence made of the tool's arguments and its result."""
    calls = [call for message in messages if isinstance(message, AIMessage) for call in message.tool_calls]
    asked = calls[-1]["args"]
    return f"{asked['a']} times {asked['b']} is {messages[-1].text}. My tool told me so, I only put it into words."


def words(text: str) -> list[AIMessageChunk]:
    """A text in chunks of one word, the spaces kept."""
    return [AIMessageChunk(content=word) for word in re.findall(r"\S+\s*", text)]


def tool_call(args: dict[str, int]) -> list[AIMessageChunk]:
    """A call of `multiply` in chunks: first its name, then its arguments piece by piece."""
    pieces = re.findall(r".{1,8}", json.dumps(args))
    head = tool_call_chunk(name="multiply", args="", id=f"call_{uuid.uuid4().hex[:12]}", index=0)
    rest = [tool_call_chunk(args=piece, index=0) for piece in pieces]
    return [AIMessageChunk(content="", tool_call_chunks=[part]) for part in (head, *rest)]
