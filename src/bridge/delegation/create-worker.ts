// The delegation worker with what it needs to reach agents: connections, tokens, and the way to answer in a room.
import { dirname, resolve } from "node:path";
import type { Logger } from "pino";
import type { Clock, Random } from "../../domain/clock.ts";
import type { RoomId } from "../../domain/identifiers.ts";
import type { AgentDirectory } from "../agents/loaded-agents.ts";
import type { TrustGate } from "../agents/trust.ts";
import type { BridgeConfig } from "../config.ts";
import type { DelegationLedger } from "../ledger/ledger.ts";
import { createDownloader, createUploader } from "../matrix/files.ts";
import { createEventSender, type SenderDependencies } from "../matrix/send-once.ts";
import { textsBy } from "../texts/language-of-room.ts";
import { createAgentHttp } from "./a2a/http-exchange.ts";
import { createTokenSource } from "./a2a/token-cache.ts";
import type { DelegationObserver } from "./dependencies.ts";
import { createTraces } from "./traces.ts";
import { createTyping } from "./typing.ts";
import { DelegationWorker } from "./worker.ts";

export interface Delegations {
  readonly worker: DelegationWorker;
  /** Ends the connections to agents and exports the last traces; to be called when the worker has drained. */
  close(): Promise<void>;
}

export function createDelegationWorker(options: {
  readonly config: BridgeConfig;
  readonly ledger: DelegationLedger;
  readonly directory: AgentDirectory;
  readonly trust: TrustGate;
  readonly sending: SenderDependencies;
  readonly rooms: { isRoomEncrypted(room: RoomId): Promise<boolean> };
  readonly mayClaim: () => boolean;
  readonly metrics: DelegationObserver;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
}): Delegations {
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
    close: async () => {
      await Promise.all([http.close(), traces?.close()]);
    },
  };
}
