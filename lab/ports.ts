// Free TCP ports on loopback, and the ports of a lab: one block of consecutive ones, below the range that the
// kernel assigns to connections.
// Invariants: a block belongs to one lab alone, also while two labs start at the same moment; a lab keeps its
// block from start to start unless another program has taken one of its ports.
import { readFileSync } from "node:fs";
import { createServer } from "node:net";
import type { Random } from "../src/domain/clock.ts";
import { DrawbridgeError } from "../src/domain/errors.ts";
import { type NamedLock, tryNamedLock } from "../src/runtime/named-lock.ts";
import { COMPLETE_ORGANISATIONS, ORGANISATION_NAMES, type OrganisationName } from "./organisations.ts";

/** A block has that many neighbours. */
export const PORTS_PER_LAB = 32;
const LOWEST_PORT = 12_000;
const ATTEMPTS = 200;

export interface OrganisationPorts {
  readonly client: number;
  readonly federation: number;
  /** The organisation's own CONNECT proxy: by it the lab knows whose traffic a connection is. */
  readonly proxy: number;
  readonly bridge: number;
  readonly observe: number;
  readonly gateway: number;
  readonly gatewayAdmin: number;
  readonly issuer: number;
  readonly agent: number;
}

export interface LabPorts {
  readonly control: number;
  readonly postgres: number;
  readonly organisations: Readonly<Record<OrganisationName, OrganisationPorts>>;
}

const HOMESERVER_PORTS = ["client", "federation", "proxy"] as const;
const SERVICE_PORTS = ["bridge", "observe", "gateway", "gatewayAdmin", "issuer", "agent"] as const;

/** The ports of the block that starts at `base`. Those that an organisation has no use for are left free. */
export function portsOfBlock(base: number): LabPorts {
  let next = base + 2;
  const organisations = Object.fromEntries(
    ORGANISATION_NAMES.map((organisation) => {
      const names = [
        ...HOMESERVER_PORTS,
        ...((COMPLETE_ORGANISATIONS as readonly string[]).includes(organisation) ? SERVICE_PORTS : []),
      ];
      const used = Object.fromEntries(names.map((name) => [name, next++]));
      const unused = Object.fromEntries(SERVICE_PORTS.map((name) => [name, 0]));
      return [organisation, { ...unused, ...used }];
    }),
  );
  // Built from the two lists above, so every name of OrganisationPorts is there.
  return { control: base, postgres: base + 1, organisations } as unknown as LabPorts;
}

/** Every port in use in a block. */
export function allPorts(ports: LabPorts): number[] {
  return [
    ports.control,
    ports.postgres,
    ...Object.values(ports.organisations).flatMap((own) => Object.values(own).filter((port) => port !== 0)),
  ];
}

/** The lock that a lab holds on its block while it runs, or while it chooses. */
export function blockLock(base: number, purpose: "running" | "choosing"): Promise<NamedLock | undefined> {
  return tryNamedLock(`ports ${base} ${purpose}`);
}

export interface ChosenBlock {
  readonly base: number;
  /** Keeps others from choosing the block until the supervisor holds it. */
  readonly lock: NamedLock;
}

/**
 * Chooses a block: `kept` if all of its ports are free, else any.
 * @throws DrawbridgeError `program_failed` when none is found.
 */
export async function chooseBlock(kept: number | undefined, random: Random): Promise<ChosenBlock> {
  const blocks = Math.floor((highestPort() - LOWEST_PORT) / PORTS_PER_LAB);
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const base =
      attempt === 0 && kept !== undefined
        ? kept
        : LOWEST_PORT + PORTS_PER_LAB * (random.bytes(4).readUInt32BE() % blocks);
    const lock = await tryBlock(base);
    if (lock !== undefined) return { base, lock };
  }
  throw new DrawbridgeError("program_failed", "found no free block of ports on 127.0.0.1", {
    hint: `Free some ports between ${LOWEST_PORT} and ${highestPort()}.`,
  });
}

async function tryBlock(base: number): Promise<NamedLock | undefined> {
  const lock = await blockLock(base, "choosing");
  if (lock === undefined) return undefined;
  const running = await blockLock(base, "running");
  if (running !== undefined) {
    await running.release();
    const wanted = allPorts(portsOfBlock(base));
    const free = await Promise.all(wanted.map((port) => freePort(port)));
    if (free.every((port, index) => port === wanted[index])) return lock;
  }
  await lock.release();
  return undefined;
}

/** Ports from here on are given to outgoing connections, so nothing that must stay listens there. */
function highestPort(): number {
  try {
    const low = Number(readFileSync("/proc/sys/net/ipv4/ip_local_port_range", "utf8").split(/\s+/)[0]);
    if (low >= LOWEST_PORT + 10 * PORTS_PER_LAB) return low - 1;
  } catch {
    // Not a Linux of the usual kind: keep to the usual value.
  }
  return 32_767;
}

function tryListen(port: number): Promise<number | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(undefined));
    server.listen({ host: "127.0.0.1", port, exclusive: true }, () => {
      const address = server.address();
      const bound = typeof address === "object" && address !== null ? address.port : undefined;
      server.close(() => resolve(bound));
    });
  });
}

/** The preferred port when nobody listens on it, else any free one. */
export async function freePort(preferred?: number): Promise<number> {
  const kept = preferred === undefined ? undefined : await tryListen(preferred);
  const port = kept ?? (await tryListen(0));
  if (port === undefined) throw new Error("no free TCP port on 127.0.0.1");
  return port;
}
