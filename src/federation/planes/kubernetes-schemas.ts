// The Kubernetes resources that are rendered here, as their definitions allow them: enough to refuse offline
// what a cluster would refuse. Written from the documentation of the Gateway API (v1), of agentgateway
// (agentgateway.dev/v1alpha1) and of core/v1, not taken from their CRDs: only the fields that are rendered
// are known, and every other is refused.
import { parseAllDocuments } from "yaml";
import { z } from "zod";

/** A ConfigMap holds at most 1 MiB. */
const CONFIG_MAP_BYTES_MAX = 1_048_576;

const Label = z.string().regex(/^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/);
const Subdomain = z
  .string()
  .max(253)
  .regex(/^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*$/);
const Port = z.int().min(1).max(65_535);
const Cel = z.string().min(1).max(16_384);

const Metadata = z.strictObject({
  name: Subdomain,
  namespace: Label,
  labels: z.record(z.string(), z.string().max(63)),
});

const ConfigMap = z.strictObject({
  apiVersion: z.literal("v1"),
  kind: z.literal("ConfigMap"),
  metadata: Metadata,
  data: z
    .record(z.string().regex(/^[A-Za-z0-9._-]{1,253}$/), z.string())
    .refine(
      (data) =>
        Object.values(data).reduce((sum, text) => sum + Buffer.byteLength(text), 0) <= CONFIG_MAP_BYTES_MAX,
      { error: "is larger than a ConfigMap may be (1 MiB): mount the rendered file by other means" },
    ),
});

const BackendRef = z.union([
  z.strictObject({
    group: z.literal(""),
    kind: z.literal("Service"),
    name: Label,
    namespace: Label.optional(),
    port: Port,
  }),
  z.strictObject({
    group: z.literal("agentgateway.dev"),
    kind: z.literal("AgentgatewayBackend"),
    name: Subdomain,
  }),
]);
const ServiceRef = z.strictObject({
  group: z.literal(""),
  kind: z.literal("Service"),
  name: Label,
  namespace: Label.optional(),
  port: Port,
});
const HttpPath = z.string().max(1_024).startsWith("/");

const HttpRoute = z.strictObject({
  apiVersion: z.literal("gateway.networking.k8s.io/v1"),
  kind: z.literal("HTTPRoute"),
  metadata: Metadata,
  spec: z.strictObject({
    parentRefs: z
      .array(
        z.strictObject({
          group: z.literal("gateway.networking.k8s.io"),
          kind: z.literal("Gateway"),
          name: Subdomain,
          namespace: Label.optional(),
        }),
      )
      .min(1)
      .max(32),
    hostnames: z.array(Subdomain).min(1).max(16).optional(),
    rules: z
      .array(
        z.strictObject({
          matches: z
            .array(
              z.strictObject({
                path: z.strictObject({ type: z.enum(["Exact", "PathPrefix"]), value: HttpPath }),
                method: z.enum(["GET", "POST"]),
              }),
            )
            .min(1)
            .max(64),
          filters: z
            .array(
              z.strictObject({
                type: z.literal("URLRewrite"),
                urlRewrite: z.strictObject({
                  path: z.union([
                    z.strictObject({ type: z.literal("ReplaceFullPath"), replaceFullPath: HttpPath }),
                    z.strictObject({ type: z.literal("ReplacePrefixMatch"), replacePrefixMatch: HttpPath }),
                  ]),
                }),
              }),
            )
            .max(16),
          backendRefs: z.array(BackendRef).min(1).max(16),
        }),
      )
      .min(1)
      .max(16),
  }),
});

const AgentgatewayBackend = z.strictObject({
  apiVersion: z.literal("agentgateway.dev/v1alpha1"),
  kind: z.literal("AgentgatewayBackend"),
  metadata: Metadata,
  spec: z.strictObject({ static: z.strictObject({ host: z.string().min(1).max(256), port: Port }) }),
});

const Header = z.string().regex(/^[A-Za-z0-9-]{1,256}$/);

const AgentgatewayPolicy = z.strictObject({
  apiVersion: z.literal("agentgateway.dev/v1alpha1"),
  kind: z.literal("AgentgatewayPolicy"),
  metadata: Metadata,
  spec: z.strictObject({
    targetRefs: z
      .array(
        z.strictObject({
          group: z.literal("gateway.networking.k8s.io"),
          kind: z.literal("HTTPRoute"),
          name: Subdomain,
        }),
      )
      .min(1)
      .max(16),
    traffic: z.strictObject({
      jwtAuthentication: z.strictObject({
        // Anything weaker lets requests without a token through to the next rule.
        mode: z.literal("Strict"),
        providers: z
          .array(
            z.strictObject({
              issuer: z.string().min(1).max(256),
              audiences: z.array(z.string().min(1)).min(1).max(64),
              jwks: z.strictObject({
                remote: z.strictObject({ jwksPath: z.string().min(1).max(1_024), backendRef: ServiceRef }),
              }),
            }),
          )
          .min(1)
          .max(64),
      }),
      authorization: z.strictObject({
        action: z.literal("Require"),
        policy: z.strictObject({ matchExpressions: z.array(Cel).min(1).max(256) }),
      }),
      rateLimit: z.strictObject({
        global: z.strictObject({
          domain: z.string().min(1).max(256),
          failureMode: z.literal("FailClosed"),
          backendRef: ServiceRef,
          descriptors: z
            .array(
              z.strictObject({
                entries: z
                  .array(z.strictObject({ name: z.string().min(1).max(64), expression: Cel }))
                  .min(1)
                  .max(16),
                unit: z.literal("Requests"),
              }),
            )
            .min(1)
            .max(16),
        }),
      }),
      transformation: z.strictObject({
        request: z.strictObject({
          set: z
            .array(z.strictObject({ name: Header, value: Cel }))
            .min(1)
            .max(16),
          remove: z.array(Header).min(1).max(16).optional(),
        }),
      }),
    }),
  }),
});

const Resource = z.discriminatedUnion("kind", [
  ConfigMap,
  HttpRoute,
  AgentgatewayBackend,
  AgentgatewayPolicy,
]);

/** What a cluster would refuse of a rendered file, one line each. */
export function invalidResources(path: string, text: string): readonly string[] {
  const documents = parseAllDocuments(text);
  if (!Array.isArray(documents)) return [`${path}: holds no resource`];
  return documents.flatMap((document, index) => {
    if (document.errors.length > 0) return [`${path}: resource ${index + 1} is not valid YAML`];
    const result = Resource.safeParse(document.toJS({ maxAliasCount: 0 }));
    if (result.success) return [];
    return result.error.issues.map(
      ({ path: at, message }) => `${path}: resource ${index + 1}: ${at.map(String).join(".")}: ${message}`,
    );
  });
}
