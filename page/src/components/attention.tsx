/** What an operator should act on: each item with the page that has more, and its change. */
import { useState } from "preact/hooks";
import type { AttentionRow, Overview } from "../api.ts";
import { pathOfItem } from "../attention.ts";
import { t } from "../messages.ts";
import { pathOf } from "../router.ts";
import { api, attempt, canOperate, notify, status } from "../session.ts";
import { ActionDialog } from "./bulk-bar.tsx";
import { Icon } from "./icon.tsx";
import { PageLink } from "./link.tsx";
import { Sparkline } from "./sparkline.tsx";
import { Ago, Since, Span } from "./time.tsx";

const SEVERITY_ICONS = { error: "failed", warning: "warning", info: "info" } as const;

interface AttentionProps { overview: Overview; onDone: () => void }

export function Attention({ overview, onDone }: AttentionProps) {
  const { attention, more_attention: more } = overview;
  const hasWorkers = (status.value?.workers ?? 1) > 0;
  const facts = attention.length === 0 ? factsOf(overview) : [];
  if (attention.length === 0 && facts.length === 0 && hasWorkers) {
    return <section class="card calm"><Icon name="succeeded" /><p><strong>{t.onTheDot}</strong> {t.onTheDotText}</p></section>;
  }
  return (
    <section class="card">
      <div class="card-head"><h2>{t.attention}</h2></div>
      <ul class="attention">
        {!hasWorkers && (
          <li class="warning"><Icon name="warning" /><span class="text">{t.noWorkers}</span><code>{t.noWorkersCode}</code></li>
        )}
        {facts.map(({ text, to, severity }) => (
          <li key={text} class={severity}><Icon name={SEVERITY_ICONS[severity]} /><span class="text">{text}</span><PageLink class="button" to={to}>{t.show}</PageLink></li>
        ))}
        {attention.map((item) => <Item key={item.kind + (item.group ?? item.text)} item={item} onDone={onDone} />)}
        {more > 0 && <li class="more">{t.moreAttention(more)}</li>}
      </ul>
    </section>
  );
}

/** What the numbers of the overview say by themselves, if the server names nothing. */
function factsOf({ counts, sources }: Overview): { text: string; to: string; severity: "error" | "warning" }[] {
  const failed = counts.failed ?? 0;
  const unserved = sources.filter((row) => row.workers === 0 && row.ready + row.parked > 0);
  const paused = sources.filter((row) => row.paused !== null || row.paused_keys.length > 0);
  return [
    ...unserved.map((row) => ({ text: t.unserved(row.name, row.ready + row.parked), to: pathOf("sources", row.name), severity: "error" as const })),
    ...paused.map((row) => ({ text: t.isPaused(row.name, row.paused?.reason ?? ""), to: pathOf("sources", row.name), severity: "warning" as const })),
    ...(failed > 0 ? [{ text: t.failedKept(failed), to: pathOf("failed"), severity: "error" as const }] : []),
  ].slice(0, 5);
}

function Item({ item, onDone }: { item: AttentionRow; onDone: () => void }) {
  const { action, group } = item;
  const path = pathOfItem(item);
  const [asks, ask] = useState(false);
  const change = action !== null && action.method !== "GET" ? action : null;
  const run = () => attempt(async () => {
    if (change === null) return;
    await api.send(change.method as "POST", change.path, change.body ?? {});
    notify("done", t.done(change.label));
    onDone();
  });
  return (
    <li class={item.severity}>
      <Icon name={SEVERITY_ICONS[item.severity]} />
      <span class="text">
        {item.text}
        {item.holders.length > 0 && (
          <span class="hint"> {t.heldBy} {item.holders.map((task) => (
            <PageLink key={task.uuid} class="tag" to={pathOf("tasks", task.uuid)}>{task.short_id} <Since at={task.started_at} /></PageLink>
          ))}</span>
        )}
        {group && item.source && <span class="hint"> <PageLink class="tag" to={pathOf("sources", item.source)}>{item.source}</PageLink></span>}
        {item.release !== null && <span class="hint"> {t.allAfter(item.release)}</span>}
      </span>
      {item.trend.length > 1 && <Sparkline values={item.trend} kind="bars" label={t.failedLastHour(item.size)} />}
      <span class="since">{item.since && item.last !== null ? <Span from={item.since} to={item.last} /> : item.since && <Ago at={item.since} />}</span>
      {path !== null && <PageLink class="button" to={path}>{t.show}</PageLink>}
      {canOperate.value && group && <button onClick={() => ask(true)}><Icon name="retry" />{t.retryMany(item.size)}</button>}
      {canOperate.value && change && <button onClick={() => void run()}>{change.label}</button>}
      {asks && <ActionDialog action="retry" uuids={[]} q={`group:${group} state:failed`} onClose={() => ask(false)} onDone={onDone} />}
    </li>
  );
}
