"""A real agent on the Python a2a-sdk of A2A 0.3: JSON-RPC at /rpc, HTTP+JSON at /rest. Prints its port.

What it does is chosen by the question: `ask` asks back and completes with the answer, `slow` works until it is canceled,
everything else is answered in two chunks of one artifact.
"""

import asyncio
import socket

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2ARESTFastAPIApplication, A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, Part, TextPart
from a2a.utils import new_task
from starlette.applications import Starlette
from starlette.routing import Mount


def parts(text):
    return [Part(root=TextPart(text=text))]


class Agent(AgentExecutor):
    async def execute(self, context, event_queue):
        task = context.current_task
        if task is None:
            task = new_task(context.message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        text = context.get_user_input()
        if context.current_task is not None:
            await self.answer(updater, ["you said ", text])
        elif "ask" in text:
            question = updater.new_agent_message(parts("Which one?"))
            await updater.requires_input(question, final=True)
        elif "slow" in text:
            await updater.start_work(updater.new_agent_message(parts("still at it")))
            await asyncio.sleep(3600)
        else:
            await self.answer(updater, ["the ", "answer"])

    async def answer(self, updater, chunks):
        await updater.start_work()
        for index, chunk in enumerate(chunks):
            last = index == len(chunks) - 1
            await updater.add_artifact(
                parts(chunk), artifact_id="a", append=index > 0, last_chunk=last
            )
        await updater.complete()

    async def cancel(self, context, event_queue):
        task = context.current_task
        await TaskUpdater(event_queue, task.id, task.context_id).cancel()


def main():
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    card = AgentCard(
        name="python",
        description="of the Python SDK",
        version="1.0.0",
        url=f"http://127.0.0.1:{port}/rpc",
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[],
    )
    handler = DefaultRequestHandler(Agent(), InMemoryTaskStore())
    rpc = A2AStarletteApplication(card, handler).routes(rpc_url="/rpc")
    rest = A2ARESTFastAPIApplication(card, handler).build()
    app = Starlette(routes=[*rpc, Mount("/rest", rest)])
    print(port, flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run([listening])


if __name__ == "__main__":
    main()
