package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// writeImage prints a container image (a docker archive) of one layer, the files of a folder:
//
//	image NAME:TAG FOLDER [ENTRYPOINT…] >IMAGE.tar
//
// All files belong to root and have the same time, so the same folder gives the same image.
func writeImage() error {
	if len(os.Args) < 3 || !strings.Contains(os.Args[1], ":") {
		return errors.New("usage: image NAME:TAG FOLDER [ENTRYPOINT…]")
	}
	name, folder, entrypoint := os.Args[1], os.Args[2], os.Args[3:]
	var layer bytes.Buffer
	if err := writeLayer(&layer, folder); err != nil {
		return err
	}
	layerID := digest(layer.Bytes())
	config, err := json.Marshal(map[string]any{
		"os":           "linux",
		"architecture": runtime.GOARCH,
		"config":       map[string]any{"Entrypoint": entrypoint, "WorkingDir": "/", "Env": []string{"PATH=/usr/bin:/bin:/"}},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + layerID}},
	})
	if err != nil {
		return err
	}
	configID := digest(config)
	manifest, err := json.Marshal([]map[string]any{{
		"Config": configID + ".json", "RepoTags": []string{name}, "Layers": []string{layerID + ".tar"},
	}})
	if err != nil {
		return err
	}
	archive := tar.NewWriter(os.Stdout)
	for _, part := range []struct {
		name    string
		content []byte
	}{{layerID + ".tar", layer.Bytes()}, {configID + ".json", config}, {"manifest.json", manifest}} {
		header := &tar.Header{Name: part.name, Mode: 0o644, Size: int64(len(part.content)), ModTime: time.Unix(0, 0)}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(part.content); err != nil {
			return err
		}
	}
	return archive.Close()
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func writeLayer(to io.Writer, folder string) error {
	layer := tar.NewWriter(to)
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == folder {
			return err
		}
		return addFile(layer, folder, path, entry)
	})
	if err != nil {
		return err
	}
	return layer.Close()
}

func addFile(layer *tar.Writer, folder, path string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = os.Readlink(path); err != nil {
			return err
		}
	}
	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	relative, err := filepath.Rel(folder, path)
	if err != nil {
		return err
	}
	header.Name = filepath.ToSlash(relative)
	if entry.IsDir() {
		header.Name += "/"
	}
	header.Uid, header.Gid, header.Uname, header.Gname = 0, 0, "root", "root"
	header.ModTime, header.AccessTime, header.ChangeTime = time.Unix(0, 0), time.Time{}, time.Time{}
	if err := layer.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(layer, file)
	return err
}
