//! What is on the screen, and what keys and the mouse make of it. Pure: no terminal, no agent.

use ratatui::crossterm::event::{
    Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

use super::columns;
use super::keys::{self, KeyAction};
use super::lines::{Grouping, LineKey, TableLine, TableOptions};
use super::rates::RowKey;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ScreenView {
    #[default]
    Tasks,
    Devices,
    Events,
}

impl ScreenView {
    pub const ALL: [ScreenView; 3] = [ScreenView::Tasks, ScreenView::Devices, ScreenView::Events];
    pub fn text(self) -> &'static str {
        match self {
            ScreenView::Tasks => "tasks",
            ScreenView::Devices => "devices",
            ScreenView::Events => "events",
        }
    }
}

/// One task from near.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetailView {
    pub key: RowKey,
    pub stderr: bool,
}

/// What stands where, since it was drawn last: for the mouse, and for pages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrawnLayout {
    /// The line of the headings.
    pub heads_at: u16,
    /// First column, behind the last one, and place in `COLUMNS`.
    pub heads: Vec<(u16, u16, usize)>,
    /// Where the first line of the table stands, and how many fit.
    pub first: u16,
    pub page: u16,
}

#[derive(Debug, Default)]
pub struct ScreenState {
    pub choice: TableOptions,
    pub view: ScreenView,
    pub selected: Option<LineKey>,
    /// Where the selected line stood: if it goes, the next one is selected.
    at: usize,
    /// The first line on the screen.
    pub top: usize,
    /// Of devices and events: lines that are above the screen (devices), or below it (events).
    pub scroll: usize,
    /// The filter before the one that is being typed.
    pub typing: Option<String>,
    pub open: Option<DetailView>,
    pub help: Option<HelpPage>,
    pub paused: bool,
    pub drawn: DrawnLayout,
}

/// What is left to be done about an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputOutcome {
    Draw,
    /// From an empty screen.
    Redraw,
    /// Something else is to be asked for.
    Query,
    Suspend,
    Quit,
    Nothing,
}

/// What `?` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HelpPage {
    Keys,
    Columns,
}

impl ScreenState {
    pub fn of(choice: TableOptions) -> ScreenState {
        ScreenState { choice, ..ScreenState::default() }
    }

    pub fn input(&mut self, event: &Event, lines: &[TableLine<'_>]) -> InputOutcome {
        match event {
            Event::Key(key) if key.kind == KeyEventKind::Release => InputOutcome::Nothing,
            Event::Key(key) if self.typing.is_some() => self.typed(key),
            Event::Key(key) => keys::act(key).map_or(InputOutcome::Nothing, |act| self.apply(act, lines)),
            Event::Mouse(mouse) => self.mouse(*mouse, lines),
            Event::Resize(..) => InputOutcome::Redraw,
            Event::FocusGained | Event::FocusLost | Event::Paste(_) => InputOutcome::Nothing,
        }
    }

    fn typed(&mut self, key: &KeyEvent) -> InputOutcome {
        let with_ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if with_ctrl => return InputOutcome::Quit,
            KeyCode::Char('u') if with_ctrl => self.choice.filter.clear(),
            KeyCode::Char(_) if with_ctrl => return InputOutcome::Nothing,
            KeyCode::Char(c) => self.choice.filter.push(c),
            KeyCode::Backspace => drop(self.choice.filter.pop()),
            KeyCode::Enter => self.typing = None,
            KeyCode::Esc => self.choice.filter = self.typing.take().unwrap_or_default(),
            _ => return InputOutcome::Nothing,
        }
        InputOutcome::Draw
    }

    pub fn apply(&mut self, act: KeyAction, lines: &[TableLine<'_>]) -> InputOutcome {
        match act {
            KeyAction::Quit => return InputOutcome::Quit,
            KeyAction::Suspend => return InputOutcome::Suspend,
            KeyAction::Redraw => return InputOutcome::Redraw,
            KeyAction::Pause => self.paused = !self.paused,
            KeyAction::Help => {
                self.help = match self.help {
                    None => Some(HelpPage::Keys),
                    Some(HelpPage::Keys) => Some(HelpPage::Columns),
                    Some(HelpPage::Columns) => None,
                }
            }
            _ if self.help.is_some() => {
                self.help = None;
                return if act == KeyAction::Back { InputOutcome::Draw } else { self.apply(act, lines) };
            }
            KeyAction::Back => return self.back(),
            KeyAction::Stream => match &mut self.open {
                Some(open) => {
                    open.stderr = !open.stderr;
                    return InputOutcome::Query;
                }
                None => return InputOutcome::Nothing,
            },
            // From near nothing else is to be chosen but the neighbours.
            KeyAction::Up | KeyAction::Down if self.open.is_some() => {
                self.move_by(act, lines);
                self.open(lines);
                return InputOutcome::Query;
            }
            _ if self.open.is_some() => return InputOutcome::Nothing,
            KeyAction::NextView => {
                let at = ScreenView::ALL.iter().position(|view| *view == self.view).unwrap_or(0);
                (self.view, self.scroll) = (ScreenView::ALL[(at + 1) % ScreenView::ALL.len()], 0);
                return InputOutcome::Query;
            }
            KeyAction::Up
            | KeyAction::Down
            | KeyAction::PageUp
            | KeyAction::PageDown
            | KeyAction::First
            | KeyAction::Last
                if self.view != ScreenView::Tasks =>
            {
                self.scroll_by(act);
            }
            KeyAction::Up
            | KeyAction::Down
            | KeyAction::PageUp
            | KeyAction::PageDown
            | KeyAction::First
            | KeyAction::Last => self.move_by(act, lines),
            _ if self.view != ScreenView::Tasks => return InputOutcome::Nothing,
            KeyAction::Open => {
                if let Some(TableLine::Group { name, .. }) = self.line(lines) {
                    let name = name.clone();
                    self.fold(&name);
                    return InputOutcome::Draw;
                }
                self.open(lines);
                return InputOutcome::Query;
            }
            KeyAction::Filter => self.typing = Some(self.choice.filter.clone()),
            KeyAction::SortLeft => self.sort_by_adjacent(false),
            KeyAction::SortRight => self.sort_by_adjacent(true),
            KeyAction::SortBy(column) => self.sort(column),
            KeyAction::Reverse => self.choice.reverse = !self.choice.reverse,
            KeyAction::Group => (self.choice.grouping, self.top) = (self.choice.grouping.next(), 0),
            KeyAction::Ended => self.choice.only_running = !self.choice.only_running,
            KeyAction::Fold => self.toggle_fold(lines),
            KeyAction::FoldAll => {
                let groups = lines.iter().filter_map(|line| match line {
                    TableLine::Group { name, .. } => Some(name.clone()),
                    TableLine::Task(_) => None,
                });
                self.choice.folded = groups.collect();
            }
            KeyAction::UnfoldAll => self.choice.folded.clear(),
        }
        InputOutcome::Draw
    }

    fn back(&mut self) -> InputOutcome {
        if self.open.take().is_some() {
            return InputOutcome::Query;
        }
        if self.view != ScreenView::Tasks {
            (self.view, self.scroll) = (ScreenView::Tasks, 0);
            return InputOutcome::Query;
        }
        self.choice.filter.clear();
        InputOutcome::Draw
    }

    /// The selected line; the first, if none is.
    pub fn line<'l, 'r>(&mut self, lines: &'l [TableLine<'r>]) -> Option<&'l TableLine<'r>> {
        self.place(lines);
        lines.get(self.at)
    }

    /// Keeps the selection in line with what there is, and on the screen. Gives where it stands.
    pub fn place(&mut self, lines: &[TableLine<'_>]) -> usize {
        let known = |key: &LineKey| lines.iter().position(|line| is(line, key));
        if let Some(at) = self.selected.as_ref().and_then(known) {
            self.at = at;
        }
        self.at = self.at.min(lines.len().saturating_sub(1));
        // Until the user moves, the top of the list is shown, whatever stands there.
        if self.selected.is_none() {
            self.at = 0;
        }
        let page = usize::from(self.drawn.page).max(1);
        let lowest = self.at.saturating_sub(page - 1);
        self.top = self.top.clamp(lowest.min(self.at), self.at).min(lines.len().saturating_sub(page));
        self.at
    }

    fn move_by(&mut self, act: KeyAction, lines: &[TableLine<'_>]) {
        let at = self.place(lines);
        let last = lines.len().saturating_sub(1);
        let page = usize::from(self.drawn.page).max(1);
        let to = match act {
            KeyAction::Up => at.saturating_sub(1),
            KeyAction::PageUp => at.saturating_sub(page),
            KeyAction::Down => at + 1,
            KeyAction::PageDown => at + page,
            KeyAction::First => 0,
            _ => last,
        };
        self.select(to.min(last), lines);
    }

    fn select(&mut self, at: usize, lines: &[TableLine<'_>]) {
        self.at = at;
        self.selected = lines.get(at).map(TableLine::key);
        self.place(lines);
    }

    fn scroll_by(&mut self, act: KeyAction) {
        let page = usize::from(self.drawn.page).max(1);
        // The newest events stand at the bottom: up is back in time.
        let up = self.view == ScreenView::Events;
        let (more, less) = if up { (KeyAction::Up, KeyAction::PageUp) } else { (KeyAction::Down, KeyAction::PageDown) };
        self.scroll = match act {
            KeyAction::First | KeyAction::Last => {
                if (act == KeyAction::First) == up {
                    usize::MAX / 2
                } else {
                    0
                }
            }
            _ if act == more => self.scroll.saturating_add(1),
            _ if act == less => self.scroll.saturating_add(page),
            KeyAction::PageUp | KeyAction::PageDown => self.scroll.saturating_sub(page),
            _ => self.scroll.saturating_sub(1),
        };
    }

    fn open(&mut self, lines: &[TableLine<'_>]) {
        let stderr = self.open.as_ref().is_some_and(|open| open.stderr);
        if let Some(TableLine::Task(row)) = self.line(lines) {
            let key = row.key.clone();
            self.selected = Some(LineKey::Task(key.clone()));
            self.open = Some(DetailView { key, stderr });
        }
    }

    fn sort(&mut self, column: usize) {
        (self.choice.sort, self.choice.reverse, self.top) = (column, false, 0);
    }

    /// Among those that are on the screen.
    fn sort_by_adjacent(&mut self, right: bool) {
        let shown: Vec<usize> = self.drawn.heads.iter().map(|(.., column)| *column).collect();
        let at = shown.iter().position(|column| *column == self.choice.sort);
        let next = match (at, right) {
            (None, _) => 0,
            (Some(at), true) => (at + 1).min(shown.len().saturating_sub(1)),
            (Some(at), false) => at.saturating_sub(1),
        };
        if let Some(column) = shown.get(next) {
            self.sort(*column);
        }
    }

    fn fold(&mut self, group: &str) {
        if !self.choice.folded.remove(group) {
            self.choice.folded.insert(group.to_owned());
        }
    }

    /// The group of the selected line; without groups they begin here.
    fn toggle_fold(&mut self, lines: &[TableLine<'_>]) {
        if self.choice.grouping == Grouping::None {
            self.choice.grouping = Grouping::Workload;
            return;
        }
        let at = self.place(lines);
        let above = lines.iter().take(at + 1).rev().find_map(|line| match line {
            TableLine::Group { name, .. } => Some(name.clone()),
            TableLine::Task(_) => None,
        });
        if let Some(group) = above {
            self.selected = Some(LineKey::Group(group.clone()));
            self.fold(&group);
        }
    }

    fn mouse(&mut self, mouse: MouseEvent, lines: &[TableLine<'_>]) -> InputOutcome {
        match mouse.kind {
            MouseEventKind::ScrollUp => self.apply(KeyAction::Up, lines),
            MouseEventKind::ScrollDown => self.apply(KeyAction::Down, lines),
            MouseEventKind::Down(MouseButton::Left) if self.help.is_some() => {
                self.help = None;
                InputOutcome::Draw
            }
            MouseEventKind::Down(MouseButton::Left) if self.open.is_none() && self.view == ScreenView::Tasks => {
                self.click(mouse.column, mouse.row, lines)
            }
            _ => InputOutcome::Nothing,
        }
    }

    fn click(&mut self, x: u16, y: u16, lines: &[TableLine<'_>]) -> InputOutcome {
        if y == self.drawn.heads_at {
            let head = self.drawn.heads.iter().find(|(from, to, _)| (*from..*to).contains(&x));
            let Some((.., column)) = head.copied() else { return InputOutcome::Nothing };
            if column == self.choice.sort {
                self.choice.reverse = !self.choice.reverse;
            } else {
                self.sort(column);
            }
            return InputOutcome::Draw;
        }
        let Some(line) = y.checked_sub(self.drawn.first).filter(|line| *line < self.drawn.page) else {
            return InputOutcome::Nothing;
        };
        let at = self.top + usize::from(line);
        let Some(clicked) = lines.get(at) else { return InputOutcome::Nothing };
        // The second click on a line is Enter.
        if self.selected.as_ref().is_some_and(|key| is(clicked, key)) {
            return self.apply(KeyAction::Open, lines);
        }
        self.select(at, lines);
        InputOutcome::Draw
    }

    /// `CPU`, `memory, upwards`.
    pub fn sorted_by(&self) -> String {
        let head = columns::COLUMNS[self.choice.sort].head;
        if self.choice.reverse { format!("{head}, reversed") } else { head.to_owned() }
    }
}

fn is(line: &TableLine<'_>, key: &LineKey) -> bool {
    match (line, key) {
        (TableLine::Group { name, .. }, LineKey::Group(known)) => name == known,
        (TableLine::Task(row), LineKey::Task(known)) => row.key == *known,
        (TableLine::Group { .. }, LineKey::Task(_)) | (TableLine::Task(_), LineKey::Group(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::columns::{CPU, MEMORY, NAME};
    use super::super::lines::lines;
    use super::super::rates::RateRow;
    use super::super::testing::row;
    use super::*;

    fn rows() -> Vec<RateRow> {
        (0..30)
            .map(|n| RateRow {
                memory: Some(n),
                ..row(&format!("docker:{n:02}"), if n < 20 { "docker" } else { "podman" }, "w")
            })
            .collect()
    }

    /// On a screen of ten lines below the headings of name, CPU and memory.
    fn state() -> ScreenState {
        let heads = vec![(0, 20, NAME), (21, 26, CPU), (27, 35, MEMORY)];
        let drawn = DrawnLayout { heads_at: 4, heads, first: 5, page: 10 };
        ScreenState { drawn, ..ScreenState::default() }
    }

    fn press(state: &mut ScreenState, rows: &[RateRow], keys: &str) -> Vec<InputOutcome> {
        let code = |c: char| match c {
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            '\t' => KeyCode::Tab,
            '\x08' => KeyCode::Backspace,
            c => KeyCode::Char(c),
        };
        let each = keys.chars().map(|c| {
            let lines = lines(rows, &state.choice);
            state.input(&Event::Key(KeyEvent::new(code(c), KeyModifiers::NONE)), &lines)
        });
        each.collect()
    }

    fn selected(state: &ScreenState) -> &str {
        match &state.selected {
            Some(LineKey::Task((alloc, _))) => alloc,
            Some(LineKey::Group(name)) => name,
            None => "",
        }
    }

    fn click(state: &mut ScreenState, rows: &[RateRow], x: u16, y: u16) -> InputOutcome {
        let kind = MouseEventKind::Down(MouseButton::Left);
        let lines = lines(rows, &state.choice);
        state.input(&Event::Mouse(MouseEvent { kind, column: x, row: y, modifiers: KeyModifiers::NONE }), &lines)
    }

    #[test]
    fn the_selection_moves_with_the_keys_and_the_screen_with_it() {
        let (mut state, rows) = (state(), rows());
        for (keys, at, top) in [
            ("j", "docker:01", 0),
            ("jjjjjjjjj", "docker:10", 1),
            ("k", "docker:09", 1),
            ("G", "docker:29", 20),
            ("j", "docker:29", 20),
            ("g", "docker:00", 0),
            ("k", "docker:00", 0),
        ] {
            press(&mut state, &rows, keys);
            assert_eq!((selected(&state), state.top), (at, top), "after {keys:?}");
        }
        state.apply(KeyAction::PageDown, &lines(&rows, &state.choice));
        assert_eq!((selected(&state), state.top), ("docker:10", 1));
    }

    #[test]
    fn selection_follows_its_task_and_moves_to_the_next_one_when_it_is_gone() {
        let (mut state, mut rows) = (state(), rows());
        press(&mut state, &rows, "jjj");
        // Sorted again, it stands elsewhere.
        press(&mut state, &rows, "M");
        assert_eq!((state.place(&lines(&rows, &state.choice)), selected(&state)), (26, "docker:03"));
        rows.remove(3);
        let shown = lines(&rows, &state.choice);
        assert_eq!(state.place(&shown), 26);
        assert_eq!(shown[26].row().name, "docker:02");
        assert_eq!(state.place(&[]), 0);
    }

    #[test]
    fn filter_is_typed_applied_and_cancelled() {
        let (mut state, rows) = (state(), rows());
        press(&mut state, &rows, "/qx\x08");
        assert_eq!((state.choice.filter.as_str(), state.typing.is_some()), ("q", true), "q leaves nothing here");
        press(&mut state, &rows, "\x1b");
        assert_eq!((state.choice.filter.as_str(), state.typing.is_some()), ("", false));
        press(&mut state, &rows, "/podman\n");
        assert_eq!((lines(&rows, &state.choice).len(), state.typing.is_some()), (10, false));
        press(&mut state, &rows, "\x1b");
        assert_eq!(lines(&rows, &state.choice).len(), 30);
        assert_eq!(press(&mut state, &rows, "q"), [InputOutcome::Quit]);
    }

    #[test]
    fn columns_are_sorted_by_keys_and_by_clicks_on_their_headings() {
        let (mut state, rows) = (state(), rows());
        press(&mut state, &rows, ">");
        assert_eq!(state.choice.sort, CPU);
        press(&mut state, &rows, ">>>");
        assert_eq!((state.choice.sort, state.choice.reverse), (MEMORY, false));
        press(&mut state, &rows, "r<");
        assert_eq!((state.choice.sort, state.choice.reverse), (CPU, false));
        assert_eq!(click(&mut state, &rows, 28, 4), InputOutcome::Draw);
        assert_eq!((state.choice.sort, state.choice.reverse), (MEMORY, false));
        click(&mut state, &rows, 28, 4);
        assert_eq!((state.choice.sort, state.choice.reverse), (MEMORY, true), "the second click turns it round");
        assert_eq!(click(&mut state, &rows, 26, 4), InputOutcome::Nothing, "between two headings");
    }

    #[test]
    fn groups_fold_by_space_wherever_in_them_one_is() {
        let (mut state, rows) = (state(), rows());
        press(&mut state, &rows, "tt");
        assert_eq!((state.choice.grouping, lines(&rows, &state.choice).len()), (Grouping::Source, 32));
        press(&mut state, &rows, "jj ");
        assert_eq!((selected(&state), lines(&rows, &state.choice).len()), ("docker", 12));
        press(&mut state, &rows, "\n");
        assert_eq!(lines(&rows, &state.choice).len(), 32, "Enter unfolds a group as well");
        press(&mut state, &rows, "-");
        assert_eq!(lines(&rows, &state.choice).len(), 2);
        press(&mut state, &rows, "+t ");
        assert_eq!((state.choice.grouping, lines(&rows, &state.choice).len()), (Grouping::Workload, 31));
    }

    #[test]
    fn details_open_and_close_and_show_the_neighbour() {
        let (mut state, rows) = (state(), rows());
        assert_eq!(press(&mut state, &rows, "j\n"), [InputOutcome::Draw, InputOutcome::Query]);
        assert_eq!(state.open.as_ref().unwrap().key.0, "docker:01");
        assert_eq!(press(&mut state, &rows, "oj"), [InputOutcome::Query, InputOutcome::Query]);
        let open = state.open.clone().unwrap();
        assert_eq!((open.key.0.as_str(), open.stderr), ("docker:02", true));
        assert_eq!(press(&mut state, &rows, "\x1b/"), [InputOutcome::Query, InputOutcome::Draw]);
        assert!(state.open.is_none() && state.typing.is_some());
    }

    #[test]
    fn a_click_selects_and_a_second_one_opens() {
        let (mut state, rows) = (state(), rows());
        assert_eq!(click(&mut state, &rows, 3, 7), InputOutcome::Draw);
        assert_eq!(selected(&state), "docker:02");
        assert_eq!(click(&mut state, &rows, 3, 7), InputOutcome::Query);
        assert_eq!(state.open.as_ref().unwrap().key.0, "docker:02");
        let mut state = super::tests::state();
        assert_eq!(click(&mut state, &rows, 3, 15), InputOutcome::Nothing, "below the table");
        let wheel = Event::Mouse(MouseEvent {
            kind: MouseEventKind::ScrollDown,
            column: 0,
            row: 0,
            modifiers: KeyModifiers::NONE,
        });
        state.input(&wheel, &lines(&rows, &state.choice));
        assert_eq!(selected(&state), "docker:01");
    }

    #[test]
    fn help_closes_with_any_key_and_views_cycle() {
        let (mut state, rows) = (state(), rows());
        press(&mut state, &rows, "?");
        assert_eq!(state.help, Some(HelpPage::Keys));
        press(&mut state, &rows, "?");
        assert_eq!(state.help, Some(HelpPage::Columns));
        press(&mut state, &rows, "\x1b");
        assert!(state.help.is_none() && state.choice.filter.is_empty());
        press(&mut state, &rows, "?j");
        assert!(state.help.is_none() && selected(&state) == "docker:01");
        press(&mut state, &rows, "\t");
        assert_eq!(state.view, ScreenView::Devices);
        press(&mut state, &rows, "\tkk");
        assert_eq!((state.view, state.scroll), (ScreenView::Events, 2));
        press(&mut state, &rows, "j\x1b");
        assert_eq!((state.view, state.scroll), (ScreenView::Tasks, 0));
        press(&mut state, &rows, "pe");
        assert!(state.paused && state.choice.only_running);
    }
}
