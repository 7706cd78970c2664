// What a binding answers with, and how it is written: one JSON body, or a stream of server-sent events.
import type { ServerResponse } from "node:http";
import { formatSSEErrorEvent, formatSSEEvent, HTTP_EXTENSION_HEADER, SSE_HEADERS } from "@a2a-js/sdk";
import type { ServerCallContext } from "@a2a-js/sdk/server";

export type Reply =
  | { readonly kind: "json"; readonly status: number; readonly mediaType: string; readonly body: unknown }
  | {
      readonly kind: "stream";
      readonly events: AsyncGenerator<unknown, void, undefined>;
      /** The reply when the stream fails before its first event. */
      readonly failed: (error: unknown) => Reply;
      /** The last event of a stream that fails later. */
      readonly errorEvent: (error: unknown) => unknown;
    };

export async function writeReply(
  response: ServerResponse,
  reply: Reply,
  context: ServerCallContext | undefined,
): Promise<void> {
  if (reply.kind === "json") {
    setExtensions(response, context);
    response.writeHead(reply.status, { "content-type": reply.mediaType }).end(JSON.stringify(reply.body));
    return;
  }
  const { events } = reply;
  let next: IteratorResult<unknown, void>;
  try {
    next = await events.next();
  } catch (error) {
    return writeReply(response, reply.failed(error), context);
  }
  setExtensions(response, context);
  response.writeHead(200, SSE_HEADERS);
  try {
    while (!next.done && !response.destroyed) {
      await write(response, formatSSEEvent(next.value));
      next = await events.next();
    }
  } catch (error) {
    await write(response, formatSSEErrorEvent(reply.errorEvent(error)));
  } finally {
    // The reader may have gone: the generator is told, and finishes the task by itself.
    await events.return();
    response.end();
  }
}

function setExtensions(response: ServerResponse, context: ServerCallContext | undefined): void {
  const activated = context?.activatedExtensions;
  if (activated !== undefined) response.setHeader(HTTP_EXTENSION_HEADER, activated.join(", "));
}

/** Resolves when there is room for more, or nobody reads any more. */
async function write(response: ServerResponse, text: string): Promise<void> {
  if (response.destroyed || response.write(text)) return;
  await new Promise<void>((resolve) => {
    const done = () => {
      response.off("drain", done).off("close", done);
      resolve();
    };
    response.once("drain", done).once("close", done);
  });
}
