// The five planes of one deployment, at work on its real parts.
import type { FederationConfig } from "../config.ts";
import type { PlaneName } from "../plane-order.ts";
import { borderRuntime } from "./border/runtime.ts";
import { cardRuntime } from "./card/runtime.ts";
import { gatewayRuntime } from "./gateway/runtime.ts";
import type { PlaneRuntime, RuntimeDependencies } from "./plane.ts";
import { roomsRuntime } from "./rooms/runtime.ts";
import { transportRuntime } from "./transport/runtime.ts";

export type PlaneRuntimes = Readonly<Record<PlaneName, PlaneRuntime>>;

export function planeRuntimes(config: FederationConfig, deps: RuntimeDependencies): PlaneRuntimes {
  return {
    transport: transportRuntime(config, deps),
    rooms: roomsRuntime(config, deps),
    border: borderRuntime(config, deps),
    card: cardRuntime(config, deps),
    gateway: gatewayRuntime(config, deps),
  };
}
