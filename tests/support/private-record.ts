// A private record that is complete, as an operator would have filled it in.
import { parseDocument } from "yaml";

export const COMPLETE_RECORD = `# Private offboarding record
version: 1
partner:
  legalEntity: Lighthouse Services GmbH
  serverName: matrix.lighthouse.example:8448
revocation:
  kind: full
  trigger: contract_end
security:
  incidentOwner: security-officer
  containmentAuthority: head-of-operations
technical:
  owner: S-1204 # the on-call engineer of that night
  rollbackOwner: S-1377
change:
  reference: https://tickets.example.org/CHG-0012345
  rollback: CHG-0012345#rollback
affected:
  rooms: ["!quay:harbour.example", "!Zk3Wz9Vb2nQ8xR4tY6uP1sD5fG7hJ0kL3aC9eX2mB4q"]
  routes: [/agents/docs-qa]
  agents: [docs-qa]
  oidcClient: lighthouse-bridge
maintenance:
  from: 2026-01-31T03:00:00Z
  until: 2026-01-31T05:00:00Z
  expectedInterruption: 30s
duties:
  retention: { state: kept, until: 2031-12-31 }
  purge:
    remoteMedia: purge
    quarantinedMedia: keep
    rooms:
      - { room: "!quay:harbour.example", how: room }
  backups: { owner: backup-operator, expireBy: 2026-07-31 }
attestation: { own: security-officer, partner: security-officer }
readmission: { possible: true, owner: head-of-operations, conditions: [new-contract, new-keys] }
`;

/** The complete record with one field set. */
export function recordWith(path: string, value: unknown): string {
  const document = parseDocument(COMPLETE_RECORD);
  document.setIn(path.split("."), value);
  return document.toString({ lineWidth: 0 });
}

/** The complete record as JSON, changed. */
export function recordJson(change: (record: Record<string, unknown>) => void = () => undefined): string {
  const record = parseDocument(COMPLETE_RECORD).toJS() as Record<string, unknown>;
  change(record);
  return `${JSON.stringify(record, null, 2)}\n`;
}
