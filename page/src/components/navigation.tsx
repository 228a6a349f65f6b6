/** The links between the pages: a line below the head, on phones a bar at the bottom. */
import { useEffect, useState } from "preact/hooks";
import { count, tinyCount } from "../format.ts";
import { t } from "../messages.ts";
import { type Entry, isCurrent, ON_PHONES, visibleEntries } from "../navigation.ts";
import { pathOf } from "../router.ts";
import { failedCount, identity, router } from "../session.ts";
import { Icon } from "./icon.tsx";
import { PageLink } from "./link.tsx";

export function Navigation() {
  const [isOpen, open] = useState(false);
  const { page } = router.location.value;
  useEffect(() => open(false), [router.location.value]);
  const entries = visibleEntries(identity.value.features);
  const rest = entries.slice(ON_PHONES);
  const isInRest = rest.some((entry) => isCurrent(entry, page));
  return (
    <nav class="nav" aria-label={t.navigation}>
      {entries.slice(0, ON_PHONES).map((entry) => <EntryLink key={entry.page} entry={entry} />)}
      <div class={`nav-rest ${isOpen ? "open" : ""}`} id="nav-rest">
        {rest.map((entry) => <EntryLink key={entry.page} entry={entry} />)}
      </div>
      <button class={`nav-more ${isInRest ? "current" : ""}`} aria-expanded={isOpen} aria-controls="nav-rest" onClick={() => open(!isOpen)}>
        <Icon name={isOpen ? "close" : "more"} /><span>{t.morePages}</span>
      </button>
    </nav>
  );
}

function EntryLink({ entry }: { entry: Entry }) {
  return (
    <PageLink to={pathOf(entry.page)} current={isCurrent(entry, router.location.value.page)}>
      <Icon name={entry.icon} />
      <span>{t.pages[entry.page]}</span>
      {entry.page === "failed" && <span class="count" title={count(failedCount.value ?? 0)}>{failedCount.value ? tinyCount(failedCount.value) : ""}</span>}
    </PageLink>
  );
}
