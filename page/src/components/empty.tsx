/** What a page shows without data: how to begin, what is wrong, or that it loads. */
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { ApiError } from "../api.ts";
import { t } from "../messages.ts";
import { storeTrouble } from "../session.ts";
import { Icon, type IconName } from "./icon.tsx";

export function Empty({ icon, title, text, code }: { icon: IconName; title: string; text?: string; code?: string }) {
  return (
    <div class="empty">
      <Icon name={icon} />
      <h2>{title}</h2>
      {text && <p>{text}</p>}
      {code && <pre>{code}</pre>}
    </div>
  );
}

const LATE = 3000;

/** Lines of the height of rows, so that nothing moves when the data arrives. */
export function Loading({ rows = 8 }: { rows?: number }) {
  const [isLate, setLate] = useState(false);
  useEffect(() => {
    const timer = window.setTimeout(() => setLate(true), LATE);
    return () => window.clearTimeout(timer);
  }, []);
  return (
    <div class="loading" aria-busy="true" aria-label={t.loading}>
      {isLate && <p class="hint" role="status">{t.stillWaiting}</p>}
      {Array.from({ length: rows }, (_, i) => <div key={i} />)}
    </div>
  );
}

interface LoadedProps<T> { data: T | null; error: ApiError | null; rows?: number; children: (data: T) => ComponentChildren }

/** The data; without it the error or the lines. Old data stays while the store does not answer. */
export function Loaded<T>({ data, error, rows, children }: LoadedProps<T>) {
  if (data !== null) return <>{children(data)}</>;
  if (error === null || error.status === 401) return <Loading rows={rows} />;
  if (storeTrouble.value !== null) return <Empty icon="warning" title={t.noDataYet} text={t.noDataYetText} />;
  if (error.status === 404) return <Empty icon="search" title={t.notFound} text={error.message} />;
  return <Empty icon="warning" title={t.cannotShow} text={error.message} />;
}
