"""A real agent on the Python a2a-sdk of A2A 1.0, which serves 0.3 too: JSON-RPC at /rpc, HTTP+JSON at /rest. Prints its port.

What it does is chosen by the question: `ask` asks back and completes with the answer, `slow` works until it is canceled,
everything else is answered in two chunks of one artifact.
"""

import asyncio
import socket

import uvicorn
from a2a.helpers import new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes.jsonrpc_routes import create_jsonrpc_routes
from a2a.server.routes.rest_routes import create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, AgentInterface
from starlette.applications import Starlette


class Agent(AgentExecutor):
    async def execute(self, context, event_queue):
        task = context.current_task
        if task is None:
            task = new_task_from_user_message(context.message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        text = context.get_user_input()
        if context.current_task is not None:
            await self.answer(updater, ["you said ", text])
        elif "ask" in text:
            question = updater.new_agent_message([new_text_part("Which one?")])
            await updater.requires_input(question)
        elif "slow" in text:
            said = updater.new_agent_message([new_text_part("still at it")])
            await updater.start_work(said)
            await asyncio.sleep(3600)
        else:
            await self.answer(updater, ["the ", "answer"])

    async def answer(self, updater, chunks):
        await updater.start_work()
        for index, chunk in enumerate(chunks):
            await updater.add_artifact(
                [new_text_part(chunk)],
                artifact_id="a",
                append=index > 0,
                last_chunk=index == len(chunks) - 1,
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
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        supported_interfaces=[
            AgentInterface(
                url=f"http://127.0.0.1:{port}/{path}",
                protocol_binding=binding,
                protocol_version=version,
            )
            for path, binding in [("rpc", "JSONRPC"), ("rest", "HTTP+JSON")]
            for version in ["1.0", "0.3"]
        ],
    )
    handler = DefaultRequestHandler(Agent(), InMemoryTaskStore(), card)
    rpc = create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=True)
    rest = create_rest_routes(handler, enable_v0_3_compat=True, path_prefix="/rest")
    print(port, flush=True)
    app = Starlette(routes=[*rpc, *rest])
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run([listening])


if __name__ == "__main__":
    main()
