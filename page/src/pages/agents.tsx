import { useState } from "preact/hooks";
import type { AgentList, AgentRow, HandleRow, Rows } from "../api.ts";
import { Empty, Loaded } from "../components/empty.tsx";
import { PageLink } from "../components/link.tsx";
import { Sparkline } from "../components/sparkline.tsx";
import { Badge } from "../components/state.tsx";
import { Ago } from "../components/time.tsx";
import { count, percent } from "../format.ts";
import { t } from "../messages.ts";
import { pathOf } from "../router.ts";
import { router } from "../session.ts";
import { useView } from "../view.ts";

export function AgentsPage() {
  const { data, error } = useView<AgentList>("/agents", {}, {
    watch: "watch=overview", on: ["counts", "rates", "invalidate"], invalidatedBy: ["sources", "workers", "outbox"], pause: 2000, every: 5000,
  });
  return (
    <div class="stack">
      <header class="page-head"><h1>{t.pages.agents}</h1><span class="hint">{data.value && count(data.value.items.length)}</span></header>
      <Loaded data={data.value} error={error.value}>
        {({ items }) => (items.length === 0
          ? <Empty icon="agents" title={t.empty.agents} text={t.empty.agentsText} code={t.empty.agentsCode} />
          : <section class="card"><Table rows={items} /></section>)}
      </Loaded>
      {data.value && <Handles counts={data.value.handles} />}
    </div>
  );
}

function Table({ rows }: { rows: readonly AgentRow[] }) {
  return (
    <table class="rows cards">
      <thead>
        <tr>
          <th>{t.events.agent}</th><th class="number">{t.events.inFlight}</th><th class="number">{t.events.lagColumn}</th><th class="number">{t.events.doneRate}</th>
          <th>{t.events.lastHour}</th><th class="number">{t.events.retriedColumn}</th><th class="number">{t.events.failedShare}</th><th class="number">{t.columns.workers}</th>
          <th><span class="hidden-text">{t.columns.actions}</span></th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => {
          const done = row.done.reduce((sum, n) => sum + n, 0);
          const share = row.failed > 0 ? row.failed / (done + row.failed) : 0;
          return (
            <tr key={row.agent}>
              <td class="main word"><PageLink to={pathOf("sources", row.source)}>{row.agent}</PageLink>{row.paused && <span class="marks"><Badge kind="warning">{t.paused}</Badge></span>}</td>
              <td class="number" data-name={t.events.inFlight}>{count(row.in_flight)}{row.running > 0 && <span class="hint"> {t.events.runningNow(row.running)}</span>}</td>
              <td class="number" data-name={t.events.lagColumn}>{row.lag === null ? <span class="none" title={t.events.lagUnknown}>{t.none}</span> : count(row.lag)}</td>
              <td class="number" data-name={t.events.doneRate}>{row.rates ? count(Math.round(row.rates.done * 60)) : t.none}</td>
              <td class="trend">{done > 0 && <Sparkline values={row.done} kind="bars" />}<span class="hint">{count(done)}</span></td>
              <td class={row.retried > 0 ? "number" : "number zero"} data-name={t.events.retriedColumn}>{count(row.retried)}</td>
              <td class={share > 0 ? "number bad" : "number zero"} data-name={t.events.failedShare}>{percent(share)}</td>
              <td class={row.workers.length > 0 ? "number" : "number bad"} data-name={t.columns.workers}>{count(row.workers.length)}</td>
              <td class="actions"><PageLink class="button" to={pathOf("outbox", "", { agent: row.agent })}>{t.events.deadLetters}</PageLink></td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}

/** What waits for events: how many, and those of one correlation id. */
function Handles({ counts }: { counts: Record<string, number> }) {
  const correlation = router.location.value.query.get("correlation") ?? "";
  const [text, setText] = useState(correlation);
  const states = Object.entries(counts).filter(([, n]) => n > 0);
  const submit = (event: Event) => {
    event.preventDefault();
    router.go(pathOf("agents", "", { correlation: text.trim() }));
  };
  return (
    <section class="card">
      <div class="card-head">
        <h2>{t.events.handles}</h2>
        <span class="hint">{states.length === 0 ? t.empty.handles : states.map(([status, n]) => t.events.handleCount(n, status)).join(" · ")}</span>
      </div>
      <form class="filters" role="search" onSubmit={submit}>
        <label class="grow"><span>{t.events.correlation}</span>
          <input type="search" value={text} spellcheck={false} placeholder={t.events.correlationHint} onInput={(event) => setText(event.currentTarget.value)} />
        </label>
        <button type="submit">{t.show}</button>
      </form>
      {correlation && <HandleList correlation={correlation} />}
    </section>
  );
}

function HandleList({ correlation }: { correlation: string }) {
  const { data, error } = useView<Rows<HandleRow>>("/resume-handles", { correlation }, {
    watch: "watch=overview", on: ["invalidate"], invalidatedBy: ["outbox"], pause: 2000, every: 2000,
  });
  return (
    <Loaded data={data.value} error={error.value} rows={2}>
      {({ items }) => (items.length === 0
        ? <p class="pad hint">{t.events.noHandle(correlation)}</p>
        : <ul class="plain">{items.map((handle) => <Handle key={handle.id} handle={handle} />)}</ul>)}
    </Loaded>
  );
}

function Handle({ handle }: { handle: HandleRow }) {
  const isOpen = handle.status === "pending";
  return (
    <li class="handle">
      <p>
        <strong>{handle.correlation_id}</strong> {t.events.received(handle.received, handle.total)}{" "}
        <Badge kind={handle.status === "expired" ? "error" : isOpen ? "info" : "quiet"}>{handle.status}</Badge>{" "}
        <span class="hint">{t.events.resumes(handle.resumes)} · {isOpen ? <>{t.events.expires} <Ago at={handle.expires_at} /></> : <Ago at={handle.ended_at} />}</span>
      </p>
      <p class="hint">{t.events.expected} {handle.expected.map(({ types, count: n }) => `${n}× ${types.join(" | ")}`).join(", ")}</p>
      {handle.arrived.length > 0 && <p class="hint">{t.events.arrived} {handle.arrived.map(({ type, event_id }) => `${type} ${event_id}`).join(", ")}</p>}
    </li>
  );
}
