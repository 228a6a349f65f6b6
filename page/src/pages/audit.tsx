import { useState } from "preact/hooks";
import { isOver } from "../actions.ts";
import type { AuditList, AuditRow } from "../api.ts";
import { Progress, stopAction } from "../components/action-progress.tsx";
import { Empty, Loaded } from "../components/empty.tsx";
import { PageLink } from "../components/link.tsx";
import { Badge } from "../components/state.tsx";
import { Clock } from "../components/time.tsx";
import { count } from "../format.ts";
import { useListKeys } from "../list-keys.ts";
import { t } from "../messages.ts";
import { pathOf } from "../router.ts";
import { canOperate, router } from "../session.ts";
import { useView } from "../view.ts";

const TIMES = ["24h", "7d", "90d"] as const;
const UUID = /^[0-9a-f]{8}-[0-9a-f-]{27}$/;

export function AuditPage() {
  const { query } = router.location.value;
  const since = TIMES.find((time) => time === query.get("since")) ?? "7d";
  const given = { since, user: query.get("user") ?? "", action: query.get("action") ?? "" };
  const cursor = query.get("cursor") ?? "";
  const { data, error } = useView<AuditList>("/audit", { ...given, cursor }, {
    watch: "watch=overview", on: ["invalidate", "bulk_action"], pause: 1000, every: 2000,
  });
  useListKeys();
  const isFiltered = given.user !== "" || given.action !== "";
  return (
    <div class="stack">
      <header class="page-head">
        <h1>{t.pages.audit}</h1>
        <span class="hint">{t.audit.kept}</span>
        <span class="grow" />
        <nav class="tabs small" aria-label={t.since}>
          {TIMES.map((time) => <PageLink key={time} to={pathOf("audit", "", { ...given, since: time })} current={since === time}>{t.audit.times[time]}</PageLink>)}
        </nav>
      </header>
      <Filters key={`${given.user} ${given.action}`} since={since} user={given.user} action={given.action} />
      <Loaded data={data.value} error={error.value}>
        {({ items, cursor: next }) => (items.length === 0
          ? <Empty icon="audit" title={isFiltered ? t.audit.noMatch : t.empty.audit(t.audit.times[since])} text={t.empty.auditText} />
          : (
            <section class="card">
              <Table rows={items} />
              {(cursor || next) && (
                <div class="pages">
                  <span class="hint">{t.audit.shown(items.length)}</span>
                  {cursor && <PageLink class="button" to={pathOf("audit", "", given)}>{t.firstPage}</PageLink>}
                  {next && <PageLink class="button" to={pathOf("audit", "", { ...given, cursor: next })}>{t.nextPage}</PageLink>}
                </div>
              )}
            </section>
          ))}
      </Loaded>
    </div>
  );
}

function Filters({ since, user, action }: { since: string; user: string; action: string }) {
  const [given, give] = useState({ user, action });
  const submit = (event: Event) => {
    event.preventDefault();
    router.go(pathOf("audit", "", { since, user: given.user.trim(), action: given.action.trim() }));
  };
  return (
    <form class="filters" role="search" onSubmit={submit}>
      <label><span>{t.audit.user}</span>
        <input type="search" value={given.user} spellcheck={false} onInput={(event) => give({ ...given, user: event.currentTarget.value })} />
      </label>
      <label><span>{t.audit.action}</span>
        <input type="search" value={given.action} spellcheck={false} list="audit-actions" onInput={(event) => give({ ...given, action: event.currentTarget.value })} />
        <datalist id="audit-actions">{t.audit.actions.map((each) => <option key={each} value={each} />)}</datalist>
      </label>
      <button type="submit">{t.show}</button>
    </form>
  );
}

function Table({ rows }: { rows: readonly AuditRow[] }) {
  return (
    <table class="rows cards tall audit">
      <thead>
        <tr>
          <th class="time first">{t.columns.when}</th><th>{t.audit.user}</th><th>{t.audit.via}</th><th>{t.audit.action}</th><th>{t.audit.target}</th><th>{t.reason}</th>
          <th class="number">{t.audit.changed}</th><th class="state-column">{t.columns.state}</th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={row.id}>
            <td class="time first"><Clock at={row.at} /></td>
            <td class="word" data-name={t.audit.user}>{row.user} {row.role !== "operator" && <span class="hint">{row.role}</span>}</td>
            <td data-name={t.audit.via}><Badge kind="quiet">{row.via}</Badge></td>
            <td class="main word">{row.action}</td>
            <td class="target"><Target row={row} /></td>
            <td data-name={row.reason ? t.reason : undefined}>{row.reason}</td>
            <td class="number" data-name={t.audit.changed}>{row.state === "failed" && row.found === 0 ? <span class="none">{t.none}</span> : t.audit.changedOf(count(row.changed), count(row.found))}</td>
            <td class="state-column"><State row={row} /></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Target({ row }: { row: AuditRow }) {
  if (row.filter) return <code>{row.filter}</code>;
  if (!UUID.test(row.target)) return <>{row.target}</>;
  return <PageLink to={pathOf("tasks", row.target)}><code>{row.target}</code></PageLink>;
}

function State({ row }: { row: AuditRow }) {
  if (!isOver(row)) {
    return (
      <span class="running-action">
        <Progress done={row.done} found={row.found} />
        {canOperate.value && <button disabled={row.state !== "running"} onClick={() => void stopAction(row.id)}>{t.audit.stop}</button>}
      </span>
    );
  }
  const kind = row.state === "failed" ? "error" : row.state === "done" ? "quiet" : "warning";
  return <span title={row.error || undefined}><Badge kind={kind}>{t.audit.states[row.state] ?? row.state}</Badge>{row.error && <span class="hint"> {row.error}</span>}</span>;
}
