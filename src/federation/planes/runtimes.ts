// The five planes of one deployment, at work on its real parts.
import type { Clock } from "../../domain/clock.ts";
import type { FederationConfig } from "../config.ts";
import type { PlaneName } from "../plane-order.ts";
import { borderRuntime } from "./border/runtime.ts";
import { cardRuntime } from "./card/runtime.ts";
import { gatewayRuntime } from "./gateway/runtime.ts";
import type { PlaneRuntime } from "./plane.ts";
import { roomsRuntime } from "./rooms/runtime.ts";
import { transportRuntime } from "./transport/runtime.ts";

export type PlaneRuntimes = Readonly<Record<PlaneName, PlaneRuntime>>;

export function planeRuntimes(config: FederationConfig, clock: Clock): PlaneRuntimes {
  return {
    transport: transportRuntime(config, clock),
    rooms: roomsRuntime(config, clock),
    border: borderRuntime(config, clock),
    card: cardRuntime(config, clock),
    gateway: gatewayRuntime(config, clock),
  };
}
