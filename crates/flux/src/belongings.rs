//! What belongs to a handle: values that die with it, and last words that are said before it is closed.

use crate::boundary::NoCancel;
use crate::error::{Error, Result};
use crate::handle::Handle;
use std::any::TypeId;
use std::cell::{Cell, RefCell};
use std::ffi::{CString, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::{Rc, Weak};

/// One place for each copy of this crate in the process: several shared objects may have one, and what one of them
/// gives to a handle must not be taken for another's.
static HERE: u8 = 0;

/// The auxiliary item's name: the type is in it, so that what is found under it is of that type.
fn key<T: 'static>() -> CString {
    let key = format!("flux-stats::{:p}::{:?}", &raw const HERE, TypeId::of::<T>());
    CString::new(key).unwrap_or_default()
}

/// Called by libflux when the item is replaced or the handle destroyed.
unsafe extern "C" fn release<T: 'static>(item: *mut c_void) {
    let _no_cancel = NoCancel::new();
    // SAFETY: the reference that `Handle::own` gave away for the same T.
    let value = unsafe { Rc::from_raw(item.cast::<T>().cast_const()) };
    // What panics in here has nobody left to tell.
    let _ = catch_unwind(AssertUnwindSafe(move || drop(value)));
}

/// What is called before the handle is closed, while it still sends.
#[derive(Default)]
struct LastWords(RefCell<Vec<Box<dyn FnOnce()>>>);

/// Says whether the handle is alive.
struct Alive(Rc<Use>);

/// What stands for a handle while it lives.
#[derive(Default)]
pub(crate) struct Use {
    /// Calls of [`WeakHandle::with`] under way.
    calls: Cell<usize>,
}

/// A handle as who does not own it may keep it: gone when the handle is.
pub struct WeakHandle {
    handle: Handle,
    alive: Weak<Use>,
}

impl WeakHandle {
    /// Gives the handle to `body`; `None` when it is closed.
    pub fn with<R>(&self, body: impl FnOnce(&Handle) -> R) -> Option<R> {
        let alive = self.alive.upgrade()?;
        alive.calls.set(alive.calls.get() + 1);
        let result = body(&self.handle);
        alive.calls.set(alive.calls.get() - 1);
        Some(result)
    }
}

impl Handle {
    /// Gives the handle a value, one of each type; it is dropped with the handle, or when another of its type is given.
    /// While it is dropped nothing can be sent any more: see [`Handle::before_close`].
    pub fn own<T: 'static>(&self, value: Rc<T>) -> Result<()> {
        let item = Rc::into_raw(value).cast_mut().cast::<c_void>();
        let key = key::<T>();
        // SAFETY: a live handle, a C string, and an item with the function that frees it.
        if unsafe { self.libflux().flux_aux_set(self.raw(), key.as_ptr(), item, Some(release::<T>)) } == 0 {
            return Ok(());
        }
        let error = Error::last(self.libflux(), "storing a value with a handle");
        // SAFETY: the reference made above, which libflux did not take.
        drop(unsafe { Rc::from_raw(item.cast::<T>().cast_const()) });
        Err(error)
    }

    /// The value of this type that the handle has.
    pub fn owned<T: 'static>(&self) -> Option<Rc<T>> {
        let key = key::<T>();
        // SAFETY: a live handle and a C string.
        let item = unsafe { self.libflux().flux_aux_get(self.raw(), key.as_ptr()) }.cast::<T>().cast_const();
        if item.is_null() {
            return None;
        }
        // SAFETY: a name with this type and this copy of the crate in it holds what `own` stored; one more is counted.
        Some(unsafe {
            Rc::increment_strong_count(item);
            Rc::from_raw(item)
        })
    }

    /// Drops the value of this type, if the handle has one.
    pub fn disown<T: 'static>(&self) {
        let key = key::<T>();
        // SAFETY: a live handle and a C string; setting nothing removes the item, which `release` frees.
        unsafe { self.libflux().flux_aux_set(self.raw(), key.as_ptr(), std::ptr::null_mut(), None) };
    }

    /// Calls `words` before the handle is closed, while it can still send: by a [`Client`](crate::Client) that is
    /// dropped, and by a module that ends or is cancelled. A handle that C closes has no last words.
    pub fn before_close(&self, words: impl FnOnce() + 'static) -> Result<()> {
        let present = match self.owned::<LastWords>() {
            Some(present) => present,
            None => {
                let present = Rc::new(LastWords::default());
                self.own(present.clone())?;
                present
            }
        };
        present.0.borrow_mut().push(Box::new(words));
        Ok(())
    }

    /// Says them, the latest first.
    pub(crate) fn say_last_words(&self) {
        let Some(last) = self.owned::<LastWords>() else { return };
        // What they say may lead to more of them.
        while let Some(words) = { last.0.borrow_mut().pop() } {
            let _ = catch_unwind(AssertUnwindSafe(words));
        }
    }

    /// What knows when the handle has gone.
    pub(crate) fn alive(&self) -> Result<Weak<Use>> {
        if let Some(alive) = self.owned::<Alive>() {
            return Ok(Rc::downgrade(&alive.0));
        }
        let alive = Rc::new(Use::default());
        let weak = Rc::downgrade(&alive);
        self.own(Rc::new(Alive(alive)))?;
        Ok(weak)
    }

    /// The handle for who does not own it.
    pub fn downgrade(&self) -> Result<WeakHandle> {
        Ok(WeakHandle { alive: self.alive()?, handle: self.again() })
    }

    /// Whether a [`WeakHandle`] is in use, somewhere up this thread's stack.
    pub(crate) fn is_in_use(&self) -> bool {
        self.owned::<Alive>().is_some_and(|alive| alive.0.calls.get() > 0)
    }

    /// Whether the handle has a reactor already. (Asking for one makes one, and then its owner cannot set another; so
    /// does the first request that is sent.)
    pub fn has_reactor(&self) -> bool {
        // The name is libflux's own. If it changes, no reactor is seen, and what would use one does without.
        // SAFETY: a live handle and a C string.
        let reactor = unsafe { self.libflux().flux_aux_get(self.raw(), c"flux::reactor".as_ptr()) };
        !reactor.is_null()
    }
}
