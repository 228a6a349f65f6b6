import { useComputed, useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { STATES, type State, type TaskList, type TaskRow } from "../api.ts";
import { BulkBar } from "../components/bulk-bar.tsx";
import { CopyAs } from "../components/copy-as.tsx";
import { Empty, Loaded } from "../components/empty.tsx";
import { FilterBox } from "../components/filter-box.tsx";
import { Icon } from "../components/icon.tsx";
import { PageLink } from "../components/link.tsx";
import { TaskTable } from "../components/task-table.tsx";
import { valueOf, withValue } from "../filters.ts";
import { clock, count, parseTime, shortCount } from "../format.ts";
import { onKey } from "../keys.ts";
import { newestStates, transitionsOf } from "../live.ts";
import { t } from "../messages.ts";
import { type NewRows, newRows } from "../new-rows.ts";
import { pathOf } from "../router.ts";
import { api, canOperate, failedCount, isHeld, noteFailure, now, onMessage, router, zone } from "../session.ts";
import { useView } from "../view.ts";

const PAGE = 50;
const ENDED: ReadonlySet<string> = new Set(["succeeded", "failed", "cancelled"]);
const ROW_PAUSE = 60;
const CONTINUES_FOR = 10_000;
/** What the back button brings back, beside the scroll position. */
const SELECTED = "selected";
const CURRENT = "current";
const NO_NEW: NewRows = { n: 0, exact: true };

export function TasksPage() {
  const { query } = router.location.value;
  const q = query.get("q") ?? "";
  const cursor = query.get("cursor") ?? "";
  return <Tasks key={`${q}\n${cursor}`} q={q} cursor={cursor} />;
}

/** `latest` follows the store; `shown` stays as it is until the operator asks for the new rows. */
function Tasks({ q, cursor }: { q: string; cursor: string }) {
  const state = valueOf(q, "state");
  const watch = `watch=tasks${q ? `&q=${encodeURIComponent(q)}` : ""}`;
  const latest = useView<TaskList>("/tasks", { q, cursor, limit: PAGE, counts: 1 }, { watch, on: ["transitions", "counts"], pause: 1000 });
  const shown = useSignal<TaskList | null>(null);
  const patches = useSignal<ReadonlyMap<string, Partial<TaskRow>>>(new Map());
  const fresh = useSignal(NO_NEW);
  const selected = useSignal<ReadonlySet<string>>(new Set(router.recall<string[]>(SELECTED)));
  const current = useSignal(-1);
  const rows = useComputed(() => (shown.value?.items ?? []).map((row) => ({ ...row, ...patches.value.get(row.uuid) })));
  useEffect(() => selected.subscribe((uuids) => router.keep(SELECTED, [...uuids])), []);
  useEffect(() => current.subscribe((index) => index >= 0 && router.keep(CURRENT, rows.peek()[index]?.uuid)), []);

  const show = () => {
    shown.value = latest.data.value;
    fresh.value = NO_NEW;
    patches.value = new Map();
  };
  const refresh = () => {
    shown.value = null;
    latest.reload(true);
  };
  const { fetchRows, patch } = useRowUpdates(rows, patches);
  useTaskKeys(rows, current, selected, shown.value?.cursor ?? null, q);

  const found = latest.data.value;
  useEffect(() => {
    if (!found) return;
    if (q === "") failedCount.value = found.counts?.failed?.n ?? failedCount.value;
    if (!shown.value || shown.value.items.length === 0) {
      show();
      if (current.value < 0) current.value = rows.value.findIndex(({ uuid }) => uuid === router.recall(CURRENT));
      return;
    }
    const known = new Set(shown.value.items.map(({ uuid }) => uuid));
    patch(found.items.filter(({ uuid }) => known.has(uuid)).map((row) => [row.uuid, row] as const));
    const here = new Set(found.items.map(({ uuid }) => uuid));
    fetchRows(rows.value.filter((row) => !here.has(row.uuid) && !ENDED.has(row.state)).map(({ uuid }) => uuid));
    if (cursor === "") fresh.value = newRows(shown.value, found);
  }, [found]);
  const filterTrouble = latest.error.value?.status === 400 || latest.error.value?.status === 403 ? latest.error.value.message : "";
  const isEmpty = shown.value?.items.length === 0 && shown.value.cursor === null;
  const toggle = (uuid: string) => {
    const next = new Set(selected.value);
    if (!next.delete(uuid)) next.add(uuid);
    selected.value = next;
  };
  const toggleAll = () => {
    selected.value = selected.value.size === rows.value.length ? new Set() : new Set(rows.value.map(({ uuid }) => uuid));
  };
  return (
    <div class="stack">
      <h1 class="hidden-text">{t.pages.tasks}</h1>
      <FilterBox value={q} sources={[...new Set(rows.value.map(({ source }) => source))]} trouble={filterTrouble}
        onChange={(text) => router.go(pathOf("tasks", "", { q: text }))} />
      <Tabs q={q} state={state} counts={found?.counts ?? null} />
      <section class="card">
        <div class="list-head">
          {selected.value.size === 0 && !isEmpty && <FreshButton rows={fresh.value} onClick={show} />}
          {canOperate.value && <BulkBar isEmpty={isEmpty} uuids={[...selected.value]} q={q} onDone={() => {
            selected.value = new Set();
            refresh();
          }} />}
          <span class="grow" />
          <CopyAs q={q} />
        </div>
        {filterTrouble
          ? <Empty icon="search" title={t.badFilter} text={filterTrouble} />
          : (
            <Loaded data={shown.value} error={latest.error.value} rows={12}>
              {(list) => (list.items.length === 0 ? list.cursor ? <Pages list={list} q={q} cursor={cursor} onMore={(more) => (shown.value = more)} /> : <NoTasks q={q} /> : (
                <>
                  <TaskTable rows={rows.value} current={current.value} selected={selected.value} onSelect={toggle} onSelectAll={toggleAll} />
                  <Pages list={list} q={q} cursor={cursor} onMore={(more) => (shown.value = more)} />
                </>
              ))}
            </Loaded>
          )}
      </section>
    </div>
  );
}

type Patch = (changes: Iterable<readonly [string, Partial<TaskRow>]>) => void;

/** States change in place. New tasks come with the next list: only the server knows which ones match the filter. */
function useRowUpdates(
  rows: { value: readonly TaskRow[] },
  patches: { value: ReadonlyMap<string, Partial<TaskRow>> },
): { fetchRows: (uuids: readonly string[]) => void; patch: Patch } {
  const updates = useMemo(() => {
    let timer = 0;
    const wanted = new Set<string>();
    const patch: Patch = (changes) => {
      const next = new Map(patches.value);
      for (const [uuid, change] of changes) next.set(uuid, { ...next.get(uuid), ...change });
      patches.value = next;
    };
    const load = async () => {
      timer = 0;
      const uuids = [...wanted].slice(0, 100);
      wanted.clear();
      try {
        const { items } = await api.get<TaskList>("/tasks", { uuids: uuids.join() });
        patch(items.map((row) => [row.uuid, row] as const));
      } catch (error) {
        noteFailure(error);
      }
    };
    const fetchRows = (uuids: readonly string[]) => {
      for (const uuid of uuids) wanted.add(uuid);
      if (wanted.size > 0 && timer === 0) timer = window.setTimeout(() => void load(), ROW_PAUSE);
    };
    return { fetchRows, patch, stop: () => window.clearTimeout(timer) };
  }, []);
  useEffect(() => {
    const stop = onMessage((name, data) => {
      if (name !== "transitions" || isHeld.value) return;
      const newest = newestStates(transitionsOf(data));
      const known = new Set(rows.value.map(({ uuid }) => uuid));
      const mine = [...newest].filter(([uuid]) => known.has(uuid));
      if (mine.length > 0) updates.patch(mine.map(([uuid, change]) => [uuid, { state: change.state as State }] as const));
      updates.fetchRows(mine.map(([uuid]) => uuid));
    });
    return () => {
      stop();
      updates.stop();
    };
  }, []);
  return updates;
}

function useTaskKeys(
  rows: { value: readonly TaskRow[] }, current: { value: number }, selected: { value: ReadonlySet<string> },
  next: string | null, q: string,
): void {
  useEffect(() => {
    const move = (step: number) => () => {
      current.value = Math.max(0, Math.min(rows.value.length - 1, current.value + step));
      document.querySelector(`tr[data-uuid="${CSS.escape(rows.value[current.value]?.uuid ?? "")}"]`)?.scrollIntoView({ block: "nearest" });
    };
    const stops = [
      onKey("j", move(1)),
      onKey("k", move(-1)),
      onKey("Enter", () => {
        const row = rows.value[current.value];
        if (row) router.go(pathOf("tasks", row.uuid));
      }),
      onKey("x", () => {
        const row = rows.value[current.value];
        if (!row) return;
        const chosen = new Set(selected.value);
        if (!chosen.delete(row.uuid)) chosen.add(row.uuid);
        selected.value = chosen;
      }),
      onKey("]", () => next && router.go(pathOf("tasks", "", { q, cursor: next }))),
      onKey("[", () => history.back()),
    ];
    return () => stops.forEach((stop) => stop());
  }, [next, q]);
}

function Tabs({ q, state, counts }: { q: string; state: string; counts: TaskList["counts"] }) {
  const all = counts ? Object.values(counts) : [];
  const total = all.reduce((sum, { n }) => sum + n, 0);
  const isExact = all.every(({ exact }) => exact);
  return (
    <nav class="tabs" aria-label={t.byState}>
      <PageLink to={pathOf("tasks", "", { q: withValue(q, "state", "") })} current={state === ""}>
        {t.all}<span class="count">{counts && countText(total, isExact)}</span>
      </PageLink>
      {STATES.map((each) => {
        const found = counts?.[each];
        return (
          <PageLink key={each} to={pathOf("tasks", "", { q: withValue(q, "state", each) })} current={state === each}>
            <Icon name={each} class={`state-${each}`} />{t.states[each]}
            <span class="count" title={found ? count(found.n) : undefined}>{found && countText(found.n, found.exact)}</span>
          </PageLink>
        );
      })}
    </nav>
  );
}

/** Nothing if it is not known at all. */
function countText(n: number, exact: boolean): string {
  if (exact) return shortCount(n);
  return n > 0 ? `${shortCount(n)}+` : "";
}

/** New tasks wait behind a button, so that nothing moves under the pointer. */
function FreshButton({ rows, onClick }: { rows: NewRows; onClick: () => void }) {
  if (rows.n === 0) return <span class="hint">{t.newestFirst}</span>;
  return <button class="fresh" onClick={onClick}><Icon name="up" />{t.fresh(rows.n, rows.exact)}</button>;
}

function NoTasks({ q }: { q: string }) {
  if (q === "") return <Empty icon="tasks" title={t.empty.tasks} text={t.empty.tasksText} code={t.empty.tasksCode} />;
  return <Empty icon="search" title={t.noMatch} text={t.noMatchText(q)} />;
}

interface PagesProps { list: TaskList; q: string; cursor: string; onMore: (list: TaskList) => void }

function Pages({ list, q, cursor, onMore }: PagesProps) {
  const isShort = list.cursor !== null && list.items.length < PAGE;
  return (
    <div class="pages">
      <span class="hint">{t.shown(list.items.length)}</span>
      {isShort && <ShortPage list={list} q={q} onMore={onMore} />}
      {cursor && <PageLink class="button" to={pathOf("tasks", "", { q })}>{t.firstPage}</PageLink>}
      {list.cursor && !isShort && <PageLink class="button" to={pathOf("tasks", "", { q, cursor: list.cursor })}>{t.nextPage}</PageLink>}
    </div>
  );
}

/** The server has a budget per request: the page goes on by itself for ten seconds, and can be stopped. */
function ShortPage({ list, q, onMore }: Omit<PagesProps, "cursor">) {
  const until = useRef(Date.now() + CONTINUES_FOR);
  const [isStopped, stop] = useState(false);
  useEffect(() => {
    if (isStopped || isHeld.value || Date.now() > until.current) {
      stop(true);
      return undefined;
    }
    const abort = new AbortController();
    api.get<TaskList>("/tasks", { q, cursor: list.cursor ?? "", limit: PAGE - list.items.length }, abort.signal).then(
      (more) => onMore({ ...more, counts: list.counts, items: [...list.items, ...more.items], scanned: list.scanned + more.scanned }),
      (error: unknown) => abort.signal.aborted || noteFailure(error),
    );
    return () => abort.abort();
  }, [list.cursor, isStopped]);
  const again = () => {
    until.current = Date.now() + CONTINUES_FOR;
    stop(false);
  };
  return (
    <>
      <span class="hint">{t.scanned(list.scanned, clock(parseTime(list.scanned_to) ?? now.value, now.value, zone.value))}</span>
      {isStopped ? <button onClick={again}>{t.continue}</button> : <button onClick={() => stop(true)}>{t.stop}</button>}
    </>
  );
}
