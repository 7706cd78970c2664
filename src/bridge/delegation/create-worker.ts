// The delegation worker with what it needs to reach agents: connections, tokens, and the way to answer in a room.
import { dirname, resolve } from "node:path";
import type { BridgeConfig } from "../config.ts";
import type { Ledger } from "../ledger/ledger.ts";
import { createDownloader, createUploader } from "../matrix/files.ts";
import { createEventSender, type SenderDependencies } from "../matrix/send-once.ts";
import { textsBy } from "../texts/language-of-room.ts";
import { createAgentHttp } from "./a2a/http-exchange.ts";
import { createTokenSource } from "./a2a/token-cache.ts";
import type { DelegationDependencies } from "./dependencies.ts";
import { createTraces } from "./traces.ts";
import { createTyping } from "./typing.ts";
import { DelegationWorker } from "./worker.ts";

type Given = "ledger" | "directory" | "trust" | "mayClaim" | "metrics" | "clock" | "random" | "log";

export function createDelegationWorker(
  options: Pick<DelegationDependencies, Given> & {
    readonly config: BridgeConfig;
    readonly sending: SenderDependencies;
    readonly rooms: Pick<Ledger["memberships"], "isRoomEncrypted">;
  },
) {
  const { config, sending, rooms, ...given } = options;
  const { clock, random, metrics, ledger } = given;
  const http = createAgentHttp();
  const traces = config.traces && createTraces(config.traces.url, config.homeserver.serverName, random);
  const worker = new DelegationWorker({
    ...given,
    http,
    traces,
    tokens: createTokenSource({
      clock,
      baseDirectory: dirname(resolve(config.directory, config.agentsFile)),
      observe: (outcome) => metrics.tokenRequest(outcome),
    }),
    sender: createEventSender({ ...sending, ledger }),
    download: createDownloader(sending),
    upload: createUploader({ ...sending, random, ledger: rooms }),
    typing: createTyping(clock, (room, ghost, timeoutMs) =>
      sending.ghosts
        .acting(ghost, (actor) => sending.homeserver.typing(actor, room, timeoutMs))
        .catch(() => undefined),
    ),
    textsOf: textsBy(config.language),
    // A reaction is not encrypted.
    takesReactions: async (room) =>
      config.encryption.senderDevices === "allow_all" || !(await rooms.isRoomEncrypted(room)),
    limits: config.limits,
    holder: `${process.pid}-${random.bytes(8).toString("hex")}`,
  });
  return {
    worker,
    /** Ends the connections to agents and exports the last traces; to be called when the worker has drained. */
    close: async () => {
      await Promise.all([http.close(), traces?.close()]);
    },
  };
}
