import { useState } from "preact/hooks";
import type { FailureList, FailureRow } from "../api.ts";
import { ActionDialog } from "../components/bulk-bar.tsx";
import { Empty, Loaded } from "../components/empty.tsx";
import { Icon } from "../components/icon.tsx";
import { PageLink } from "../components/link.tsx";
import { Sparkline } from "../components/sparkline.tsx";
import { Ago, Clock } from "../components/time.tsx";
import { count } from "../format.ts";
import { useListKeys } from "../list-keys.ts";
import { t } from "../messages.ts";
import { pathOf } from "../router.ts";
import { canOperate, router } from "../session.ts";
import { useView } from "../view.ts";

const TIMES = ["1h", "24h", "7d"] as const;
type Time = (typeof TIMES)[number];
/** Of a retry that one watches: tasks per second. */
const SLOW_RATE = 5;

export function FailedPage() {
  const { query } = router.location.value;
  const since = TIMES.find((time) => time === query.get("since")) ?? "24h";
  const source = query.get("source") ?? "";
  const { data, error } = useView<FailureList>("/failures", { since, source }, {
    watch: "watch=overview", on: ["counts", "invalidate"], invalidatedBy: ["failures"], pause: 2000, every: 10_000,
  });
  useListKeys();
  return (
    <div class="stack">
      <header class="page-head">
        <h1>{t.pages.failed}</h1>
        <span class="hint">{data.value && data.value.items.length > 0 && t.failedSummary(count(data.value.counted), data.value.items.length)}</span>
        <span class="grow" />
        <SourceFilter since={since} source={source} rows={data.value?.items ?? []} />
        <nav class="tabs small" aria-label={t.since}>
          {TIMES.map((time) => <PageLink key={time} to={pathOf("failed", "", { since: time, source })} current={since === time}>{t.times[time]}</PageLink>)}
        </nav>
      </header>
      <Loaded data={data.value} error={error.value}>
        {(list) => (list.items.length === 0
          ? <Empty icon="succeeded" title={t.empty.failed(t.times[since])} text={t.empty.failedText} />
          : (
            <>
              <ul class="groups">{list.items.map((row) => <Group key={row.group} row={row} />)}</ul>
              <p class="hint">{list.counted_to ? t.countedSoFar(list.read, list.total) : <>{t.asOf} <Ago at={list.as_of} /></>}</p>
            </>
          ))}
      </Loaded>
    </div>
  );
}

/** Sources whose failures this tab has seen: a filtered list names only one. */
const seen = new Set<string>();

function SourceFilter({ since, source, rows }: { since: Time; source: string; rows: readonly FailureRow[] }) {
  for (const name of [source, ...rows.map((row) => row.source)]) if (name) seen.add(name);
  const choose = (name: string) => router.go(pathOf("failed", "", { since, source: name }));
  return (
    <label class="inline-field"><span>{t.columns.source}</span>
      <select value={source} onChange={(event) => choose(event.currentTarget.value)}>
        <option value="">{t.all}</option>
        {[...seen].sort().map((name) => <option key={name} value={name}>{name}</option>)}
      </select>
    </label>
  );
}

function isSameSecond(first: string, last: string | null): boolean {
  return first.slice(0, 19) === last?.slice(0, 19);
}

function Group({ row }: { row: FailureRow }) {
  const [isOpen, open] = useState(false);
  const [asks, ask] = useState<{ rate?: number } | null>(null);
  return (
    <li class="card group">
      <div class="group-count"><b>{count(row.count)}</b><span>{t.times2}</span></div>
      <div class="group-text">
        <p class="error-line"><strong>{row.type}</strong> <span class={isOpen ? "" : "clamp"} onClick={() => open(!isOpen)}>{row.message}</span></p>
        <p class="hint">
          <PageLink to={pathOf("sources", row.source)}>{row.source}</PageLink>
          {" · "}{row.first && !isSameSecond(row.first, row.last) && <><Clock at={row.first} /> – </>}<Clock at={row.last} />
          {row.place && <> · <code title={row.place}>{row.place}</code></>}
        </p>
      </div>
      <div class="group-trend" title={t.trend}>{row.trend.some((n) => n > 0) && <Sparkline values={row.trend} kind="bars" />}</div>
      <div class="group-actions">
        <PageLink class="button" opens to={pathOf("tasks", "", { q: `group:${row.group}` })}>{t.showAll(row.count)}</PageLink>
        {row.example && <PageLink class="button" to={pathOf("tasks", row.example)}>{t.example}</PageLink>}
        {canOperate.value && <button onClick={() => ask({})}><Icon name="retry" />{t.retryGroup}</button>}
        {canOperate.value && row.count > 1 && <button onClick={() => ask({ rate: SLOW_RATE })}>{t.retryAt(SLOW_RATE)}</button>}
        {asks && <ActionDialog action="retry" uuids={[]} q={`group:${row.group} state:failed`} rate={asks.rate} onClose={() => ask(null)} onDone={() => undefined} />}
      </div>
    </li>
  );
}
