// The programs of a lab: what is started how, after what, and how it is known to be ready. Pure.
// Invariant: an organisation's programs are started as its operator would start them, from its own folder.
import { homeserverEndpoints, serviceEndpoints } from "../endpoints.ts";
import { HOMESERVER_FILES } from "../homeserver.ts";
import type { Lab } from "../lab.ts";
import {
  COMPLETE_ORGANISATIONS,
  type CompleteOrganisation,
  type OrganisationName,
} from "../organisations.ts";
import type { LabPrograms } from "../programs.ts";

export interface CommandLine {
  readonly command: string;
  readonly args: readonly string[];
  readonly directory: string;
}

export interface UnitSpec {
  /** `postgres`, or organisation and program: `org-a/bridge`. */
  readonly name: string;
  /** Units that must be ready before this one is started. */
  readonly after: readonly string[];
  readonly program: CommandLine | "postgres";
  /** Ready when this answers 200; the embedded PostgreSQL knows by itself. */
  readonly readyUrl: string | undefined;
  /** From SIGTERM to SIGKILL. */
  readonly stopTimeoutMs: number;
}

export const POSTGRES = "postgres";
export const PROGRAMS = ["homeserver", "issuer", "agent", "gateway", "bridge"] as const;
export type ProgramName = (typeof PROGRAMS)[number];

export function unitName(organisation: OrganisationName, program: ProgramName): string {
  return `${organisation}/${program}`;
}

export function unitsOf(lab: Lab, programs: LabPrograms): UnitSpec[] {
  return [
    { name: POSTGRES, after: [], program: "postgres", readyUrl: undefined, stopTimeoutMs: 30_000 },
    ...lab.organisations.map((organisation) => homeserver(lab, organisation, programs)),
    ...COMPLETE_ORGANISATIONS.flatMap((organisation) => services(lab, organisation, programs)),
  ];
}

function homeserver(lab: Lab, organisation: OrganisationName, programs: LabPrograms): UnitSpec {
  const directory = lab.paths.organisation(organisation).homeserver;
  return {
    name: unitName(organisation, "homeserver"),
    after: [POSTGRES],
    program: {
      command: programs.python,
      args: ["-m", "synapse.app.homeserver", "--config-path", `${directory}/${HOMESERVER_FILES.config}`],
      directory,
    },
    readyUrl: `${homeserverEndpoints(lab, organisation).clientUrl}/_matrix/client/versions`,
    stopTimeoutMs: 20_000,
  };
}

function services(lab: Lab, organisation: CompleteOrganisation, programs: LabPrograms): UnitSpec[] {
  const paths = lab.paths.organisation(organisation);
  const endpoints = serviceEndpoints(lab, organisation);
  const unit = (
    program: ProgramName,
    command: string,
    config: string,
    directory: string,
    readyUrl: string,
    after: readonly ProgramName[],
  ): UnitSpec => ({
    name: unitName(organisation, program),
    after: after.map((name) => unitName(organisation, name)),
    program: {
      command: programs.node,
      args: [programs.drawbridge, command, "--config", config],
      directory,
    },
    readyUrl,
    stopTimeoutMs: 30_000,
  });
  return [
    unit("issuer", "issuer", paths.issuerConfig, paths.issuer, endpoints.jwksUrl, []),
    unit(
      "agent",
      "docs-qa",
      paths.agentConfig,
      paths.agent,
      `${endpoints.agentUrl}/.well-known/agent-card.json`,
      [],
    ),
    // The gateway fetches the issuer's keys as it starts; the card's route is open, so it shows that both serve.
    unit("gateway", "gateway", paths.gatewayConfig, paths.gateway, endpoints.cardUrl, ["issuer", "agent"]),
    unit("bridge", "bridge", paths.bridgeConfig, paths.bridge, endpoints.healthUrl, ["homeserver"]),
  ];
}

/** Units that are started after `name` and so are to be stopped before it. */
export function dependantsOf(units: readonly UnitSpec[], name: string): UnitSpec[] {
  return units.filter((unit) => unit.after.includes(name));
}
