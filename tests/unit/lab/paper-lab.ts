// A lab that exists on paper only: fixed names, ports and paths.

import type { Lab } from "../../../lab/lab.ts";
import { labPaths } from "../../../lab/layout.ts";
import { organisationsWith } from "../../../lab/organisations.ts";
import { portsOfBlock } from "../../../lab/ports.ts";
import type { ServerName } from "../../../src/domain/identifiers.ts";

const BASE = 20_000;

export function paperLab(directory = "/srv/lab/default"): Lab {
  const ports = portsOfBlock(BASE);
  const nameOf = (organisation: keyof typeof ports.organisations) =>
    `${organisation}.test:${ports.organisations[organisation].federation}` as ServerName;
  return {
    id: "0123456789abcdef0123456789abcdef",
    name: "default",
    paths: labPaths(directory),
    portBase: BASE,
    ports,
    serverNames: {
      "org-a": nameOf("org-a"),
      "org-b": nameOf("org-b"),
      "org-c": nameOf("org-c"),
      "org-d": nameOf("org-d"),
    },
    organisations: organisationsWith(false),
  };
}
