// The programs of a lab: what is started how, after what, and how it is known to be ready. Pure.
// Invariant: an organisation's programs are started as its operator would start them, from its own folder.
import { join } from "node:path";
import { HOMESERVER_FILES } from "../configuration/synapse-config.ts";
import { homeserverEndpoints, serviceEndpoints } from "../endpoints.ts";
import type { Lab } from "../lab.ts";
import { CLONE } from "../layout.ts";
import {
  COMPLETE_ORGANISATIONS,
  type CompleteOrganisation,
  isComplete,
  type OrganisationName,
} from "../organisations.ts";
import type { LabPrograms } from "../programs.ts";

export interface CommandLine {
  readonly command: string;
  readonly args: readonly string[];
  readonly directory: string;
  /** Added to what the supervisor itself was given. */
  readonly environment?: Readonly<Record<string, string>>;
}

export interface UnitSpec {
  /** `postgres`, or organisation and program: `org-a/bridge`. */
  readonly name: string;
  /** Units that must be ready before this one is started. */
  readonly after: readonly string[];
  /** Files that must be there before it is started. */
  readonly needs?: readonly string[];
  readonly program: CommandLine | "postgres";
  /** Ready when this is answered so; as soon as it runs without one. The embedded PostgreSQL knows by itself. */
  readonly ready: Sign | undefined;
  /** From SIGTERM to SIGKILL. */
  readonly stopTimeoutMs: number;
}

/** The Python package of the policy module that A and B run inside their homeservers. */
const BORDER_MODULE = join(CLONE, "border", "src");

export const POSTGRES = "postgres";
export const PROGRAMS = ["homeserver", "issuer", "agent", "gateway", "bridge", "reconciler"] as const;
export type ProgramName = (typeof PROGRAMS)[number];

export function unitName(organisation: OrganisationName, program: ProgramName): string {
  return `${organisation}/${program}`;
}

export function unitsOf(lab: Lab, programs: LabPrograms): UnitSpec[] {
  return [
    { name: POSTGRES, after: [], program: "postgres", ready: undefined, stopTimeoutMs: 30_000 },
    ...lab.organisations.map((organisation) => homeserver(lab, organisation, programs)),
    ...COMPLETE_ORGANISATIONS.flatMap((organisation) => services(lab, organisation, programs)),
  ];
}

function homeserver(lab: Lab, organisation: OrganisationName, programs: LabPrograms): UnitSpec {
  const paths = lab.paths.organisation(organisation);
  return {
    name: unitName(organisation, "homeserver"),
    after: [POSTGRES],
    program: {
      command: programs.python,
      args: [
        "-m",
        "synapse.app.homeserver",
        ...["--config-path", `${paths.homeserver}/${HOMESERVER_FILES.config}`],
        // What is read later outranks what was read before.
        ...(isComplete(organisation) ? ["--config-path", paths.homeserverIncludes] : []),
      ],
      directory: paths.homeserver,
      ...(isComplete(organisation) ? { environment: { PYTHONPATH: BORDER_MODULE } } : {}),
    },
    ready: {
      url: `${homeserverEndpoints(lab, organisation).clientUrl}/_matrix/client/versions`,
      status: 200,
    },
    stopTimeoutMs: 20_000,
  };
}

function services(lab: Lab, organisation: CompleteOrganisation, programs: LabPrograms): UnitSpec[] {
  const paths = lab.paths.organisation(organisation);
  const endpoints = serviceEndpoints(lab, organisation);
  const unit = (
    program: ProgramName,
    command: readonly string[],
    config: string,
    directory: string,
    ready: Sign | undefined,
    after: readonly ProgramName[],
  ): UnitSpec => ({
    name: unitName(organisation, program),
    after: after.map((name) => unitName(organisation, name)),
    program: {
      command: programs.node,
      args: [...command, "--config", config],
      directory,
    },
    ready,
    stopTimeoutMs: 30_000,
  });
  const good = (url: string): Sign => ({ url, status: 200 });
  return [
    unit(
      "issuer",
      [programs.drawbridge, "issuer"],
      paths.issuerConfig,
      paths.issuer,
      good(endpoints.jwksUrl),
      [],
    ),
    unit(
      "agent",
      [join(CLONE, "examples", "docs-qa", "main.ts")],
      paths.agentConfig,
      paths.agent,
      good(endpoints.agentCardUrl),
      [],
    ),
    // The gateway fetches the issuer's keys as it starts, and serves only then.
    unit(
      "gateway",
      [programs.drawbridge, "gateway"],
      paths.gatewayConfig,
      paths.gateway,
      { url: endpoints.nowhereUrl, status: 404 },
      ["issuer", "agent"],
    ),
    unit(
      "bridge",
      [programs.drawbridge, "bridge"],
      paths.bridgeConfig,
      paths.bridge,
      good(endpoints.healthUrl),
      ["homeserver"],
    ),
    {
      // It acts as the operator, who is registered once the homeserver runs.
      ...unit(
        "reconciler",
        [programs.drawbridge, "reconcile"],
        paths.federationConfig,
        paths.federation,
        undefined,
        ["homeserver", "gateway", "bridge"],
      ),
      needs: [paths.operatorToken],
    },
  ];
}

/** Units that are started after `name` and so are to be stopped before it. */
export function dependantsOf(units: readonly UnitSpec[], name: string): UnitSpec[] {
  return units.filter((unit) => unit.after.includes(name));
}

// Whether a program answers as it does when it is well.

/** A resource, and the status that shows the program at work. */
export interface Sign {
  readonly url: string;
  readonly status: number;
}

/** @param timeoutMs after which silence counts as no */
export async function answers(sign: Sign, timeoutMs: number): Promise<boolean> {
  try {
    const response = await fetch(sign.url, { signal: AbortSignal.timeout(timeoutMs) });
    await response.body?.cancel();
    return response.status === sign.status;
  } catch {
    return false;
  }
}
