/* table.tsx - the numbers behind a picture, to be read, sorted and taken away. */
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { number, count } from "../base/format";
import type { Sheet } from "../data/format";
import { download, sheetTable, toCsv, toJson, type Cell, type Table } from "../data/tables";
import { Panel } from "./pieces";

const PAGE = 100;

/* The button beside a panel's title. */
export function TableButton({ table, label = "Table" }: { table: () => Table; label?: string }) {
    const [open, setOpen] = useState(false);
    return (
        <>
            <button type="button" class="quiet" aria-haspopup="dialog" onClick={() => setOpen(true)}>
                {label}
            </button>
            {open && <TableDialog table={table()} onClose={() => setOpen(false)} />}
        </>
    );
}

export function TableDialog({ table, onClose }: { table: Table; onClose: () => void }) {
    const dialog = useRef<HTMLDialogElement>(null);
    useLayoutEffect(() => {
        const node = dialog.current!;
        node.showModal();
        return () => node.close();
    }, []);
    const press = (event: MouseEvent) => {
        if (event.target === dialog.current) onClose();
    };
    return (
        <dialog ref={dialog} class="sheet" aria-label={table.title} onClose={onClose} onClick={press}>
            <header>
                <h2>{table.title}</h2>
                <div class="actions">
                    <button
                        type="button"
                        onClick={() => download(`${table.name}.csv`, "text/csv", toCsv(table))}>
                        CSV
                    </button>
                    <button
                        type="button"
                        onClick={() => download(`${table.name}.json`, "application/json", toJson(table))}>
                        JSON
                    </button>
                    <button type="button" class="quiet" aria-label="Close" onClick={onClose}>
                        ✕
                    </button>
                </div>
            </header>
            <SortedTable table={table} />
        </dialog>
    );
}

function compare(a: Cell, b: Cell): number {
    if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
    return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
}

export function SortedTable({ table, page = PAGE }: { table: Table; page?: number }) {
    const [order, setOrder] = useState<{ column: number; down: boolean } | null>(null);
    const [shown, setShown] = useState(page);
    const rows = useMemo(() => {
        if (!order) return table.rows;
        return [...table.rows].sort(
            (a, b) => (order.down ? -1 : 1) * compare(a[order.column], b[order.column]),
        );
    }, [table, order]);
    const turn = (column: number) =>
        setOrder(
            order?.column !== column ? { column, down: false } : order.down ? null : { column, down: true },
        );
    return (
        <div class="table-holder" tabIndex={0} role="region" aria-label={table.title}>
            <table>
                <thead>
                    <tr>
                        {table.columns.map((name, column) => (
                            <th
                                key={name}
                                scope="col"
                                class={typeof table.rows[0]?.[column] === "number" ? "number" : ""}
                                aria-sort={
                                    order?.column !== column
                                        ? "none"
                                        : order.down
                                          ? "descending"
                                          : "ascending"
                                }>
                                <button type="button" onClick={() => turn(column)}>
                                    {name.replace(/_/g, " ")}
                                    <i aria-hidden="true">
                                        {order?.column !== column ? "" : order.down ? " ↓" : " ↑"}
                                    </i>
                                </button>
                            </th>
                        ))}
                    </tr>
                </thead>
                <tbody>
                    {rows.slice(0, shown).map((row, i) => (
                        <tr key={i}>
                            {row.map((cell, column) => (
                                <td key={column} class={typeof cell === "number" ? "number" : ""}>
                                    {cellText(cell)}
                                </td>
                            ))}
                        </tr>
                    ))}
                </tbody>
            </table>
            {rows.length > shown && (
                <p class="more">
                    <button type="button" onClick={() => setShown(shown + 5 * page)}>
                        Show more ({count(rows.length - shown)} left)
                    </button>
                </p>
            )}
        </div>
    );
}

/* Tables that a command prints, one at a time. */
export function Sheets({ sheets, name }: { sheets: Record<string, Sheet>; name: string }) {
    const names = Object.keys(sheets);
    const [chosen, choose] = useState(names[0]);
    const sheet = sheets[chosen];
    const table = useMemo(() => sheet && sheetTable(sheet, `${name}-${chosen}`), [sheet]);
    if (!table) return null;
    return (
        <Panel title={table.title} class="wide" actions={<TableButton label="Open" table={() => table} />}>
            <div class="chips tables">
                {names.map((one) => (
                    <button key={one} type="button" aria-pressed={one === chosen} onClick={() => choose(one)}>
                        {one}
                    </button>
                ))}
            </div>
            <SortedTable key={chosen} table={table} page={16} />
        </Panel>
    );
}

const cellText = (cell: Cell): string =>
    cell === null
        ? "–"
        : typeof cell === "boolean"
          ? cell
              ? "yes"
              : "no"
          : typeof cell !== "number"
            ? cell
            : Number.isInteger(cell)
              ? count(cell)
              : number(cell, 4);
