// Which issuer a deployment has.
import type { Clock } from "../../../domain/clock.ts";
import type { FederationConfig } from "../../config.ts";
import type { IssuerAdapter } from "./issuer-adapter.ts";
import { declaredClientsAdapter } from "./issuer-declared.ts";
import { keycloakAdapter } from "./issuer-keycloak.ts";

/** @param directory where relative paths of the configuration start */
export function issuerAdapter(
  issuer: NonNullable<FederationConfig["gateway"]>["issuer"],
  directory: string,
  clock: Clock,
): IssuerAdapter {
  return issuer.adapter === "keycloak"
    ? keycloakAdapter(issuer, directory, clock)
    : declaredClientsAdapter(issuer, directory);
}
