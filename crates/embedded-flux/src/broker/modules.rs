//! A broker's modules: loaded, listed, removed.

use crate::broker::Broker;
use crate::broker::peer::Role;
use crate::message::{Message, NODEID_ANY, REQUEST, with_nul};
use crate::module::{self, EXITED, ModMain, RUNNING, Start};
use serde_json::{Value, json};
use std::ffi::{CStr, CString};
use std::os::unix::net::UnixStream;

pub(crate) struct Module {
    path: String,
    peer: String,
    thread: libc::pthread_t,
    /// What its file was opened as; null for a built-in.
    library: *mut libc::c_void,
    running: bool,
    /// The request that is answered when it runs, or has failed to.
    load: Option<Message>,
    /// The request that is answered when it has ended.
    remove: Option<Message>,
}

impl Broker {
    pub(crate) fn load(&mut self, request: &Message) {
        let payload = request.json();
        let path = payload["path"].as_str().unwrap_or_default();
        let file = path.rsplit('/').next().unwrap_or_default();
        let name =
            payload["name"].as_str().unwrap_or_else(|| file.strip_suffix(".so").unwrap_or(file)).to_owned();
        if self.modules.contains_key(&name) {
            return self.refuse(request, libc::EEXIST, "module already exists");
        }
        let words = payload["args"].as_array().into_iter().flatten();
        let arguments = words.filter_map(|word| word.as_str().map(str::to_owned)).collect();
        match open(path) {
            Ok(code) => self.start_module(&name, path, code, arguments, Some(request.clone())),
            Err(why) => self.refuse(request, libc::ENOENT, &why),
        }
    }

    pub(crate) fn start_module(
        &mut self,
        name: &str,
        path: &str,
        (library, main): (*mut libc::c_void, ModMain),
        arguments: Vec<String>,
        load: Option<Message>,
    ) {
        let Ok((ours, stream)) = UnixStream::pair() else { return };
        self.numbers += 1;
        let peer = format!("module-{}-{name}", self.numbers);
        self.add_peer(peer.clone(), ours, Role::Local);
        self.services.insert(name.to_owned(), peer.clone());
        if let Some(thread) = module::spawn(Start { name: name.to_owned(), arguments, main, stream }) {
            let path = path.to_owned();
            let module = Module { path, peer, thread, library, running: false, load, remove: None };
            self.modules.insert(name.to_owned(), module);
            self.append_log("broker", 7, &format!("insmod {name}"));
        }
    }

    pub(crate) fn remove(&mut self, request: &Message) {
        let payload = request.json();
        let name = payload["name"].as_str().unwrap_or_default();
        if !self.modules.contains_key(name) {
            return self.refuse(request, libc::ENOENT, "No such file or directory");
        }
        self.append_log("broker", 7, &format!("rmmod {name}"));
        self.stop_module(name, Some(request.clone()), payload["cancel"].as_bool().unwrap_or(false));
    }

    pub(crate) fn stop_module(&mut self, name: &str, request: Option<Message>, cancel: bool) {
        let Some(module) = self.modules.get_mut(name) else { return };
        if let Some(waiting) = std::mem::replace(&mut module.remove, request) {
            self.refuse(&waiting, libc::EBUSY, "another removal is under way");
        }
        let Some(module) = self.modules.get(name) else { return };
        if cancel {
            unsafe { libc::pthread_cancel(module.thread) };
        } else {
            let mut shutdown = Message::new(REQUEST, &format!("{name}.shutdown"), None);
            (shutdown.noresponse, shutdown.rolemask, shutdown.nodeid) = (true, 1, NODEID_ANY);
            let peer = module.peer.clone();
            self.send(&peer, shutdown);
        }
    }

    pub(crate) fn list(&self) -> Value {
        let modules = self.modules.iter().map(|(name, module)| {
            json!({
                "name": name, "path": module.path, "idle": 0, "status": u32::from(module.running),
                "services": [name], "sendqueue": 0, "recvqueue": 0,
            })
        });
        json!({ "mods": modules.collect::<Vec<_>>() })
    }

    /// A module passes nothing on to itself any more.
    pub(crate) fn finalize(&mut self, request: &Message) {
        if let Some(peer) = request.route.last().cloned() {
            self.services.retain(|_, of| *of != peer);
        }
        self.respond(request, 0, None);
    }

    /// A module says what has become of it.
    pub(crate) fn module_status(&mut self, from: &str, payload: &Value) {
        let Some(name) =
            self.modules.iter().find(|(_, module)| module.peer == from).map(|(name, _)| name.clone())
        else {
            return;
        };
        let errnum = payload["errnum"].as_i64().and_then(|errnum| i32::try_from(errnum).ok()).unwrap_or(0);
        match payload["status"].as_u64().and_then(|status| u32::try_from(status).ok()) {
            Some(RUNNING) => {
                let load = self.modules.get_mut(&name).and_then(|module| {
                    module.running = true;
                    module.load.take()
                });
                if let Some(load) = load {
                    self.respond(&load, 0, None);
                }
            }
            Some(EXITED) => self.exited(&name, errnum),
            _ => {}
        }
    }

    fn exited(&mut self, name: &str, errnum: i32) {
        let Some(module) = self.modules.remove(name) else { return };
        let mut result = std::ptr::null_mut();
        unsafe {
            libc::pthread_join(module.thread, &mut result);
            if !module.library.is_null() {
                libc::dlclose(module.library);
            }
        }
        if result as isize == -1 {
            self.append_log("broker", 7, &format!("{name} thread was canceled"));
        }
        self.append_log("broker", 7, &format!("module {name} exited"));
        if let Some(load) = module.load {
            let errnum = if errnum == 0 { libc::ECONNRESET } else { errnum };
            let text = unsafe { CStr::from_ptr(libc::strerror(errnum)) }.to_string_lossy().into_owned();
            self.append_log("broker", 3, &format!("{name}: {text}"));
            self.refuse(&load, errnum, &text);
        } else if errnum != 0 {
            // As a broker of Flux without broker.module-nopanic.
            eprintln!("embedded-broker: module {name} runtime failure");
            std::process::exit(1);
        }
        if let Some(remove) = module.remove {
            self.respond(&remove, 0, None);
        }
        self.exit_if_done();
    }

    pub(crate) fn refuse(&mut self, request: &Message, errnum: i32, text: &str) {
        self.respond(request, errnum, Some(with_nul(text)));
    }
}

fn open(path: &str) -> Result<(*mut libc::c_void, ModMain), String> {
    let path_c = CString::new(path).map_err(|_| format!("{path}: bad path"))?;
    let dlerror = || {
        let text = unsafe { libc::dlerror() };
        let known = !text.is_null();
        if known { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() } else { path.to_owned() }
    };
    // As Flux opens them.
    let flags = libc::RTLD_NOW | libc::RTLD_GLOBAL | libc::RTLD_DEEPBIND;
    let library = unsafe { libc::dlopen(path_c.as_ptr(), flags) };
    if library.is_null() {
        return Err(dlerror());
    }
    let main = unsafe { libc::dlsym(library, c"mod_main".as_ptr()) };
    if main.is_null() {
        unsafe { libc::dlclose(library) };
        return Err("module does not define mod_main()".to_owned());
    }
    Ok((library, unsafe { std::mem::transmute::<*mut libc::c_void, ModMain>(main) }))
}
