/** A state: always an icon and its word. */
import type { State } from "../api.ts";
import { t } from "../messages.ts";
import { Icon } from "./icon.tsx";

export function StateBadge({ state, compact = false }: { state: State; compact?: boolean }) {
  return (
    <span class={`state state-${state}`} title={compact ? t.states[state] : undefined}>
      <Icon name={state} />
      <span class={compact ? "hidden-text" : ""}>{t.states[state]}</span>
    </span>
  );
}

export function Badge({ kind, children }: { kind: "error" | "warning" | "info" | "quiet"; children: string }) {
  return <span class={`badge badge-${kind}`}>{children}</span>;
}
