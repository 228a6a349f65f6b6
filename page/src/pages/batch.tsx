import { useEffect, useState } from "preact/hooks";
import type { BatchDetail, PartRow, PartStateRow } from "../api-flows.ts";
import { BatchTimes, DeadlineBadge } from "../components/batch-times.tsx";
import { CopyButton } from "../components/copy.tsx";
import { Loaded } from "../components/empty.tsx";
import { Bar, CancelBatchDialog, Fact, WholeState } from "../components/flow-parts.tsx";
import { Icon } from "../components/icon.tsx";
import { Download, PageLink } from "../components/link.tsx";
import { StateBadge } from "../components/state.tsx";
import { Ago, Clock } from "../components/time.tsx";
import { count, duration, parseTime, shortId } from "../format.ts";
import { onKey } from "../keys.ts";
import { t } from "../messages.ts";
import { pathOf } from "../router.ts";
import { api, canOperate, router } from "../session.ts";
import { useView } from "../view.ts";
import { BatchBadges } from "./batches.tsx";

const MOST_PARTS = 200;

export function BatchPage() {
  const { id } = router.location.value;
  return <BatchView key={id} id={id} />;
}

function BatchView({ id }: { id: string }) {
  const { data, error, reload } = useView<BatchDetail>(`/batches/${encodeURIComponent(id)}`, {}, {
    watch: `watch=batch&id=${encodeURIComponent(id)}`, on: ["batch", "transitions"], pause: 250, load: 10, every: 5000,
  });
  const [isCancelling, cancel] = useState(false);
  const isAlive = data.value !== null && data.value.batch.ended_at === null;
  useEffect(() => {
    const stops = [onKey("c", () => canOperate.value && isAlive && cancel(true)), onKey("Escape", () => history.back())];
    return () => stops.forEach((stop) => stop());
  }, [isAlive]);
  return (
    <Loaded data={data.value} error={error.value}>
      {(detail) => (
        <div class="stack">
          <Head detail={detail} onCancel={() => cancel(true)} />
          {isAlive && detail.waits && <section class="card explain"><Icon name="info" /><div><h2>{t.whatItWaitsFor}</h2><p>{detail.waits}</p></div></section>}
          <BatchTimes detail={detail} />
          <div class="columns">
            <Parts states={detail.states} />
            <Newest detail={detail} />
          </div>
          {detail.parts.length > 0 && <PartTable detail={detail} />}
          {isCancelling && <CancelBatchDialog id={detail.batch.id} tasks={detail.alive} onClose={() => cancel(false)} onDone={() => reload(true)} />}
        </div>
      )}
    </Loaded>
  );
}

function Head({ detail, onCancel }: { detail: BatchDetail; onCancel: () => void }) {
  const { batch } = detail;
  const begin = parseTime(batch.started_at) ?? 0;
  const took = (at: string | null) => duration((parseTime(at) ?? begin) - begin);
  const refused = Object.entries(detail.refused);
  return (
    <header class="task-head">
      <div class="task-title">
        <h1>{batch.source}{batch.type && ` · ${batch.type}`}</h1>
        <WholeState state={batch.state} ended={batch.ended_at !== null} />
        <BatchBadges row={batch} />
        <span class="grow" />
        {canOperate.value && batch.ended_at === null && <button onClick={onCancel}><Icon name="cancelled" />{t.cancelRest}</button>}
      </div>
      <p class="id-line"><code>{batch.id}</code><CopyButton text={batch.id} label={t.copyId} /></p>
      {batch.reason && <p class="error-text">{batch.reason}</p>}
      <dl class="facts-list">
        <Fact name={t.columns.items}><span class="batch-items">{t.ofTotal(count(batch.items), count(batch.count))}</span></Fact>
        <Fact name={t.columns.parts}>{t.ofTotal(count(batch.done), count(batch.total))}</Fact>
        <Fact name={t.columns.failed}><span class={batch.failed > 0 ? "bad-number" : ""}>{count(batch.failed)}</span></Fact>
        <Fact name={t.columns.began}><Clock at={batch.started_at} /> <span class="hint"><Ago at={batch.started_at} /></span></Fact>
        {detail.first_at && <Fact name={t.firstResult}>{t.after(took(detail.first_at))}</Fact>}
        {batch.ended_at && <Fact name={t.columns.duration}>{took(batch.ended_at)}</Fact>}
        {detail.eta && <Fact name={t.eta}><Ago at={detail.eta} />{detail.eta_error_ms !== null && <span class="hint"> {t.giveOrTake(duration(detail.eta_error_ms))}</span>}</Fact>}
        {detail.deadline && <Fact name={t.deadline}>{t.after(took(detail.deadline))} <DeadlineBadge detail={detail} /></Fact>}
        {refused.length > 0 && <Fact name={t.refused}>{refused.map(([reason, n]) => `${reason} ${count(n)}`).join(", ")}</Fact>}
        {detail.topped_up > 0 && <Fact name={t.toppedUp}>{count(detail.topped_up)}</Fact>}
        {detail.retries > 0 && <Fact name={t.retries}>{count(detail.retries)}</Fact>}
        <Fact name={t.coordinator}><PageLink to={pathOf("tasks", batch.id)}>{t.openTask}</PageLink></Fact>
      </dl>
      <Bar done={batch.items} failed={0} total={batch.count} name={t.columns.items} />
    </header>
  );
}

/** One square per part, which opens its task. */
function Parts({ states }: { states: readonly PartStateRow[] }) {
  const present = [...new Set(states.map(({ state }) => state))];
  return (
    <section class="card">
      <div class="card-head"><h2>{t.columns.parts}</h2><span class="legend">{present.map((state) => <StateBadge key={state} state={state} />)}</span></div>
      <div class="part-grid">
        {states.slice(0, MOST_PARTS).map((part) => (
          <PageLink key={part.index} class={`part state-${part.state}`} to={pathOf("tasks", part.uuid)}>
            <Icon name={part.state} /><span class="hidden-text">{t.partIs(part.index + 1, t.states[part.state])}</span>
          </PageLink>
        ))}
        {states.length > MOST_PARTS && <span class="hint">{t.more(states.length - MOST_PARTS)}</span>}
      </div>
    </section>
  );
}

/** The newest items first, as text. */
function Newest({ detail }: { detail: BatchDetail }) {
  const { batch, newest } = detail;
  const path = `/batches/${encodeURIComponent(batch.id)}/parts`;
  return (
    <section class="card">
      <div class="card-head">
        <h2>{t.newestItems}</h2>
        <CopyButton text={new URL(api.address(path), window.location.href).href} label={t.copyStream} />
        {newest.length > 0 && <Download address={api.address(path, { limit: 200 })}>{t.download}</Download>}
      </div>
      {newest.length === 0
        ? <p class="hint">{t.noItems}</p>
        : <ol class="newest-items" tabIndex={0} aria-label={t.newestItems}>{[...newest].reverse().map((text, i) => <li key={`${batch.items}-${i}`}>{text}</li>)}</ol>}
    </section>
  );
}

function PartTable({ detail }: { detail: BatchDetail }) {
  const begin = parseTime(detail.batch.started_at) ?? 0;
  const newest: PartRow[] = [...detail.parts].reverse().slice(0, MOST_PARTS);
  return (
    <section class="card">
      <div class="card-head"><h2>{t.endedParts}</h2></div>
      <table class="rows cards">
        <thead><tr><th class="state-column">{t.columns.state}</th><th>{t.columns.part}</th><th class="number">{t.columns.items}</th><th>{t.refused}</th><th>{t.columns.reason}</th><th>{t.columns.worker}</th><th class="number">{t.columns.duration}</th><th class="number">{t.ended}</th></tr></thead>
        <tbody>
          {newest.map((part) => (
            <tr key={part.number}>
              <td class="state-column"><StateBadge state={part.error ? "failed" : "succeeded"} /></td>
              <td class="main"><PageLink to={pathOf("tasks", part.uuid)}>{t.partNumber(part.number)}</PageLink></td>
              <td class="number" data-name={t.columns.items}>{count(part.items)}</td>
              <td data-name={t.refused}>{Object.entries(part.refused).map(([reason, n]) => `${reason} ${count(n)}`).join(", ") || <span class="none">{t.none}</span>}</td>
              <td class="reason error-text"><span class="clamp">{part.error}</span></td>
              <td data-name={t.columns.worker}>{part.worker ? <code title={part.worker}>{shortId(part.worker)}</code> : <span class="none">{t.none}</span>}</td>
              <td class="number" data-name={t.columns.duration}>{part.ms === null ? t.none : duration(part.ms)}</td>
              <td class="number" data-name={t.ended}>{t.after(duration((parseTime(part.ended_at) ?? begin) - begin))}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
