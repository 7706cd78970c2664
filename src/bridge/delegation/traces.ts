// OpenTelemetry traces of delegations: one span a delegation, one for each call to its agent and each event sent. Invariants:
// a span carries names of agents, outcomes and times, never content, users or rooms; the agent's spans are children of the
// delegation's own (W3C Trace Context); a collector that is away, slow or full delays nothing: spans are dropped then.
import { type HrTime, type SpanContext, SpanKind, SpanStatusCode, TraceFlags } from "@opentelemetry/api";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { BatchSpanProcessor, type ReadableSpan } from "@opentelemetry/sdk-trace";
import manifest from "../../../package.json" with { type: "json" };
import type { Random } from "../../domain/clock.ts";
import type { DelegationOutcome } from "../ledger/delegation-transitions.ts";
import type { ClaimedDelegation } from "../ledger/leases.ts";

type Traced = Pick<ClaimedDelegation, "traceparent" | "agentId" | "admittedAt" | "lease">;

/** A call to the agent or an event that was sent. Times are milliseconds since 1970. */
export interface TracedStep {
  readonly name: `a2a ${string}` | "matrix send";
  readonly from: number;
  readonly to: number;
  /** Stable and content-free. */
  readonly outcome: string;
  readonly isError: boolean;
}

const EXPORT_TIMEOUT_MS = 5_000;
const SCOPE = { name: manifest.name, version: manifest.version };

/** Exports by OTLP over HTTP, with the headers of OTEL_EXPORTER_OTLP_HEADERS. @param url such as http://127.0.0.1:4318/v1/traces */
export function createTraces(url: string, serverName: string, random: Random) {
  const resource = resourceFromAttributes({
    "service.name": "drawbridge-bridge",
    "service.version": manifest.version,
    "service.namespace": serverName,
  });
  const exporter = new OTLPTraceExporter({ url, timeoutMillis: EXPORT_TIMEOUT_MS });
  const processor = new BatchSpanProcessor({ exporter, exportTimeoutMillis: EXPORT_TIMEOUT_MS });
  type Span = Pick<ReadableSpan, "name" | "kind" | "attributes" | "parentSpanContext">;
  const record = (context: SpanContext, from: number, to: number, isError: boolean, span: Span) =>
    processor.onEnd({
      ...span,
      status: { code: isError ? SpanStatusCode.ERROR : SpanStatusCode.UNSET },
      spanContext: () => context,
      startTime: hrTime(from),
      endTime: hrTime(to),
      duration: hrTime(to - from),
      resource,
      instrumentationScope: SCOPE,
      ...{ links: [], events: [], ended: true },
      ...{ droppedAttributesCount: 0, droppedEventsCount: 0, droppedLinksCount: 0 },
    });
  return {
    step: (delegation: Traced, { name, from, to, outcome, isError }: TracedStep) => {
      const parentSpanContext = contextOf(delegation.traceparent);
      record({ ...parentSpanContext, spanId: random.bytes(8).toString("hex") }, from, to, isError, {
        ...{ name, kind: SpanKind.CLIENT, parentSpanContext },
        attributes: { "drawbridge.agent": delegation.agentId, "drawbridge.outcome": outcome },
      });
    },
    ended: (
      delegation: Traced,
      { state, stage, reason }: Pick<DelegationOutcome, "state" | "stage" | "reason">,
      at: number,
    ) =>
      record(contextOf(delegation.traceparent), delegation.admittedAt, at, state === "failed", {
        ...{ name: "delegation", kind: SpanKind.CONSUMER },
        attributes: {
          "drawbridge.agent": delegation.agentId,
          "drawbridge.delegation": delegation.lease.delegationId,
          "drawbridge.state": state,
          "drawbridge.stage": stage,
          "drawbridge.reason": reason,
        },
      }),
    /** Exports what still waits, for a few seconds at most. Never rejects. */
    close: () => processor.shutdown().catch(() => undefined),
  };
}

/** The span that a `traceparent` of the ledger names: `00-TRACE-SPAN-01`. */
function contextOf(traceparent: string): SpanContext {
  const [, traceId = "", spanId = ""] = traceparent.split("-");
  return { traceId, spanId, traceFlags: TraceFlags.SAMPLED };
}

function hrTime(ms: number): HrTime {
  const seconds = Math.trunc(ms / 1_000);
  return [seconds, Math.round((ms - seconds * 1_000) * 1e6)];
}
